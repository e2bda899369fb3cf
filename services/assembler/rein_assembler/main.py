"""Assembler process: join the events of each group, publish its end, once.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_assembler.adapters.arrays import BlobArrays
from rein_assembler.config import AssemblerConfig
from rein_assembler.service import Assembler
from rein_blobs import BlobStore
from rein_bus.kafka import KafkaBus
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock


async def build(config: AssemblerConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    clock = SystemClock()
    assembler = Assembler(
        bus=await scope.enter(KafkaBus(config.kafka)),
        arrays=BlobArrays(BlobStore(config.blobs.url), clock=clock),
        clock=clock,
        unopened_limit_s=config.unopened_limit_s,
        checkpoint_records=config.checkpoint_records,
    )
    scope.status(lambda: Status(num_in_flight=assembler.num_open_groups))
    return partial(assembler.run, scope.draining)


def main() -> int:
    return run_service("assembler", AssemblerConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
