"""Dispatcher process: decide which rollout runs next and when a run is over.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_bus.kafka import KafkaBus
from rein_dispatcher.adapters.catalog import FileCatalog
from rein_dispatcher.adapters.rpc import SERVICE_NAME, DispatcherServicer
from rein_dispatcher.config import DispatcherConfig
from rein_dispatcher.service import Dispatcher
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock


async def build(config: DispatcherConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    bus = await scope.enter(KafkaBus(config.kafka))
    catalog = FileCatalog(harnesses=config.harnesses)
    dispatcher = Dispatcher(bus=bus, catalog=catalog, clock=SystemClock(), lease_s=config.lease_s, tick_s=config.tick_s)
    scope.admin.add(DispatcherServicer(dispatcher).register, service_name=SERVICE_NAME)
    scope.status(lambda: Status(num_in_flight=dispatcher.num_open_groups(), details=dispatcher.details()))
    return partial(dispatcher.run, scope.draining)


def main() -> int:
    return run_service("dispatcher", DispatcherConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
