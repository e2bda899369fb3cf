"""Grader process: take finished rollouts, run their hidden tests, publish a grade for each.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_blobs import BlobStore
from rein_bus.kafka import KafkaBus
from rein_grader.adapters.examiner import SandboxExaminer
from rein_grader.config import GraderConfig
from rein_grader.service import Grader, GraderSettings
from rein_sandboxes.bubblewrap import open_bubblewrap
from rein_sandboxes.folders import sweep
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock


async def build(config: GraderConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    state = config.state.resolve() / "live"
    await sweep(state)
    sandboxes = await scope.enter(open_bubblewrap(config.sandbox))
    examiner = SandboxExaminer(sandboxes, state=state, tasks_cache=config.tasks_cache.resolve())
    bus = await scope.enter(KafkaBus(config.kafka))
    settings = GraderSettings.of(config)
    grader = Grader(
        bus=bus, blobs=BlobStore(config.blobs.url), examiner=examiner, clock=SystemClock(), settings=settings
    )
    scope.status(lambda: Status(num_in_flight=grader.num_in_flight, details={"capacity": str(config.capacity)}))
    return partial(grader.run, scope.draining)


def main() -> int:
    return run_service("grader", GraderConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
