"""Gateway process: answer harnesses' model calls, record every turn before its answer.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_bus.kafka import KafkaBus
from rein_dialects.rendering import Renderer
from rein_gateway.adapters.engine import open_engine
from rein_gateway.adapters.http import HttpFace
from rein_gateway.adapters.web import served
from rein_gateway.config import GatewayConfig
from rein_gateway.domain.nodes import Nodes
from rein_gateway.following import follow
from rein_gateway.service import Gateway, Settings
from rein_service import Loop, Scope, Status, run_service
from rein_service.clock import SystemClock


async def build(config: GatewayConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    clock, nodes = SystemClock(), Nodes()
    renderer = Renderer(config.model)
    bus = await scope.enter(KafkaBus(config.kafka))
    engine = await scope.enter(open_engine())
    settings = Settings(**{name: getattr(config, name) for name in Settings.__slots__})
    gateway = Gateway(bus=bus, engine=engine, renderer=renderer, nodes=nodes, clock=clock, settings=settings)
    face = HttpFace(
        gateway,
        secret=config.grant_secret.get_secret_value().encode(),
        max_body_bytes=config.http.max_body_bytes,
        stream_patience_s=config.stream_patience_s,
    )
    await scope.enter(served(face.app, host=config.http.host, port=config.http.port))
    scope.status(lambda: Status(num_in_flight=gateway.num_calls(), details=gateway.details()))
    return partial(follow, bus, gateway=gateway, nodes=nodes, clock=clock, draining=scope.draining)


def main() -> int:
    return run_service("gateway", GatewayConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
