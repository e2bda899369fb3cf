"""Weight server process: keep versions of the weights and move inference nodes to them.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_service import Loop, Scope, run_service
from rein_service.clock import SystemClock
from rein_transfer.buffers import reuse_buffers
from rein_weightserver.adapters.folder import FolderStore
from rein_weightserver.adapters.rpc import listening
from rein_weightserver.config import WeightServerConfig
from rein_weightserver.service import WeightServer


async def build(config: WeightServerConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    reuse_buffers()
    store = await scope.enter(FolderStore(config.folder))
    server = WeightServer(
        store=store,
        clock=SystemClock(),
        stage_s=config.stage_s,
        keep_versions=config.keep_versions,
        tick_s=config.tick_s,
    )
    await scope.enter(listening(server, host=config.listen.host, port=config.listen.port))
    scope.status(server.status)
    return partial(server.run, scope.draining)


def main() -> int:
    return run_service("weightserver", WeightServerConfig, build, check_bus=None)


if __name__ == "__main__":
    raise SystemExit(main())
