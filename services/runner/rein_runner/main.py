"""Runner process: take requested rollouts, run their harness in a sandbox, publish what it left.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_blobs import BlobStore
from rein_bus.kafka import KafkaBus
from rein_runner.adapters.gateway import open_gateway
from rein_runner.adapters.workshop import LocalWorkshop
from rein_runner.attempt import AttemptSettings, Means
from rein_runner.config import RunnerConfig
from rein_runner.service import Runner
from rein_sandboxes.bubblewrap import open_bubblewrap
from rein_sandboxes.folders import sweep
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock


async def build(config: RunnerConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    clock, state = SystemClock(), config.state.resolve()
    await sweep(state / "live")
    means = Means(
        sandboxes=await scope.enter(open_bubblewrap(config.sandbox)),
        workshop=LocalWorkshop.of(config, state=state),
        gateway=await scope.enter(open_gateway(config.gateways, clock=clock, patience_s=config.gateway_patience_s)),
        blobs=BlobStore(config.blobs.url),
        clock=clock,
        settings=AttemptSettings.of(config, state=state),
    )
    bus = await scope.enter(KafkaBus(config.kafka))
    runner = Runner(bus=bus, means=means, capacity=config.capacity, drain_s=config.drain_s)
    scope.status(lambda: Status(num_in_flight=runner.num_in_flight, details={"capacity": str(config.capacity)}))
    return partial(runner.run, scope.draining)


def main() -> int:
    return run_service("runner", RunnerConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
