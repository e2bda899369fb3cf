"""Inference node process: one vLLM engine and the weight agent beside it.

The composition root: the only module that names concrete adapters. No logic, no branches.
Exit status: 0 stopped on request, 1 a loop failed, 2 bad configuration.
"""

from functools import partial

from rein_bus.kafka import KafkaBus
from rein_inference.adapters.command import engine_command
from rein_inference.adapters.memory import SharedMemory
from rein_inference.adapters.model import check_model, check_port
from rein_inference.adapters.vllm import VllmEngine
from rein_inference.config import InferenceConfig
from rein_inference.service import InferenceNode
from rein_service import Loop, Scope, run_service
from rein_service.clock import SystemClock
from rein_transfer.buffers import reuse_buffers
from rein_transfer.subscriber import WeightSubscriber


async def build(config: InferenceConfig, scope: Scope) -> Loop:
    """Open every resource in `scope`, which closes them in reverse, and return the loop."""
    reuse_buffers()
    check_model(config.model, max_context_tokens=config.engine.max_context_tokens)
    check_port(config.engine.host, port=config.engine.port)
    clock = SystemClock()
    node = InferenceNode(
        bus=await scope.enter(KafkaBus(config.kafka)),
        engine=await scope.enter(VllmEngine(engine_command(config), settings=config.engine, clock=clock)),
        feed=await scope.enter(WeightSubscriber(config.weightserver)),
        memory=SharedMemory(config.memory, node=config.node),
        clock=clock,
        config=config,
    )
    scope.status(node.status)
    return partial(node.run, scope.draining)


def main() -> int:
    return run_service("inference", InferenceConfig, build)


if __name__ == "__main__":
    raise SystemExit(main())
