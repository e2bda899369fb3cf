"""What the gateway learns from the log: which nodes may serve, which attempts are over."""

import asyncio

from rein.v1 import events_pb2 as ev
from rein_bus.ports import Bus, Start
from rein_contracts.ids import attempt_id
from rein_gateway.domain.nodes import Nodes
from rein_gateway.service import Gateway
from rein_service.clock import Clock


async def follow(bus: Bus, *, gateway: Gateway, nodes: Nodes, clock: Clock, draining: asyncio.Event) -> None:
    """Until `draining` is set."""
    async with bus.follow(ev.NodeReported, ev.RolloutFenced, start=Start.EARLIEST) as log, asyncio.TaskGroup() as tasks:

        async def read() -> None:
            async for record in log:
                message = record.message
                if isinstance(message, ev.NodeReported):
                    nodes.report(message, now_s=clock.monotonic())
                elif isinstance(message, ev.RolloutFenced) and message.identity.attempt > 0:
                    await gateway.fence(attempt_id(message.identity))

        reader = tasks.create_task(read())
        idle = tasks.create_task(gateway.drop_idle())
        await draining.wait()
        reader.cancel()
        idle.cancel()
