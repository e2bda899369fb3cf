"""Learner process: make a step from each batch of groups, checkpoint it, publish its weights.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_blobs import BlobStore
from rein_bus.kafka import KafkaBus
from rein_learner.adapters.arrays import BlobArrays
from rein_learner.adapters.checkpoints import CheckpointFolder
from rein_learner.adapters.school import TorchSchool
from rein_learner.config import LearnerConfig
from rein_learner.course import Means
from rein_learner.service import Learner
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock
from rein_transfer.publisher import WeightPublisher


async def build(config: LearnerConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    clock = SystemClock()
    means = Means(
        bus=await scope.enter(KafkaBus(config.kafka)),
        school=await scope.enter(TorchSchool(config.torch)),
        checkpoints=CheckpointFolder(config.state.resolve()),
        weights=await scope.enter(WeightPublisher(config.weightserver)),
        arrays=BlobArrays(BlobStore(config.blobs.url), clock=clock),
        clock=clock,
    )
    learner = Learner(means)
    scope.status(lambda: Status(num_in_flight=learner.num_held, details=learner.details()))
    return partial(learner.run, scope.draining)


def main() -> int:
    return run_service("learner", LearnerConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
