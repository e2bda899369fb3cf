"""The gateway's own parts put together, over whatever bus, blob store, engine and clock it is given."""

from dataclasses import dataclass

from rein_bus.ports import Bus
from rein_dialects.rendering import ModelFolderBroken, Renderer
from rein_gateway.attempts import Attempts
from rein_gateway.calls import Calls
from rein_gateway.config import GatewayConfig
from rein_gateway.domain.nodes import Nodes
from rein_gateway.ports import Blobs, Engine
from rein_gateway.recording import Recorder
from rein_gateway.sampling import Sampler
from rein_service import SetupError
from rein_service.clock import Clock


@dataclass(frozen=True, slots=True)
class Outside:
    """What the gateway stands on."""

    bus: Bus
    blobs: Blobs
    engine: Engine
    clock: Clock


@dataclass(frozen=True, slots=True)
class Core:
    """What the loop and the harnesses' side work with."""

    nodes: Nodes
    attempts: Attempts
    sampler: Sampler
    calls: Calls


def core_of(config: GatewayConfig, outside: Outside) -> Core:
    """Raises SetupError when the model folder cannot be used."""
    renderer, clock = _renderer(config), outside.clock
    nodes = Nodes(spill_calls=config.spill_calls)
    recorder = Recorder(
        bus=outside.bus,
        blobs=outside.blobs,
        clock=clock,
        instance=config.instance,
        renderer_digest=renderer.digest,
        patience_s=config.bus_patience_s,
    )
    attempts = Attempts(recorder=recorder, clock=clock, idle_s=config.session_idle_s)
    sampler = Sampler(
        engine=outside.engine,
        nodes=nodes,
        recorder=recorder,
        clock=clock,
        stop_id=renderer.end_of_turn_id,
        patience_s=config.node_patience_s,
    )
    calls = Calls(recorder=recorder, sampler=sampler, renderer=renderer, clock=clock)
    return Core(nodes, attempts, sampler, calls)


def _renderer(config: GatewayConfig) -> Renderer:
    try:
        return Renderer(config.model)
    except ModelFolderBroken as error:
        raise SetupError("model.broken", f"{error} (key model)") from error
