"""Observer process: fold the topics into boards, show them live, raise alerts.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_bus.kafka import KafkaBus
from rein_observer.adapters.page import Page
from rein_observer.adapters.stream import WindowTables
from rein_observer.adapters.web import served
from rein_observer.config import ObserverConfig
from rein_observer.domain.alerts import Limits
from rein_observer.domain.board import Boards
from rein_observer.service import Observer
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock


async def build(config: ObserverConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    bus = await scope.enter(KafkaBus(config.kafka))
    tables = WindowTables(config.kafka, window_s=config.window_s, num_windows=config.num_windows, state=config.state)
    await scope.enter(tables)
    boards = Boards()
    page = Page(boards=boards, windows=tables, clock=SystemClock(), interval_s=config.page.interval_s)
    await scope.enter(served(page.app, host=config.page.host, port=config.page.port))
    limits = Limits(**config.alerts.model_dump())
    observer = Observer(bus=bus, boards=boards, limits=limits, clock=SystemClock())
    scope.status(lambda: Status(details={"runs": str(len(boards.runs))}))
    return partial(observer.run, scope.draining)


def main() -> int:
    return run_service("observer", ObserverConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
