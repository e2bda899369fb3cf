"""Gateway process: answer harnesses' model calls, record every turn before its answer.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_blobs import BlobStore
from rein_bus.kafka import KafkaBus
from rein_gateway.adapters.engine import open_engine
from rein_gateway.adapters.http import Desk, open_listener
from rein_gateway.config import GatewayConfig
from rein_gateway.service import Gateway
from rein_gateway.wiring import Outside, core_of
from rein_service import Loop, Scope, run_service
from rein_service.clock import SystemClock


async def build(config: GatewayConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    bus = await scope.enter(KafkaBus(config.kafka))
    engine = await scope.enter(open_engine(patience_s=config.engine_patience_s))
    outside = Outside(bus, BlobStore(config.blobs.url), engine, SystemClock())
    core = core_of(config, outside)
    listener = await scope.enter(open_listener(Desk.of(core, config, clock=outside.clock), settings=config.http))
    gateway = Gateway(bus=bus, core=core, listener=listener, clock=outside.clock)
    scope.status(gateway.status)
    return partial(gateway.run, scope.draining)


def main() -> int:
    return run_service("gateway", GatewayConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
