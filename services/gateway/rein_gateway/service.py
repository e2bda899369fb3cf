"""The gateway's loop: hear of nodes and fences, answer harnesses until asked to stop.

No request is answered before every fence in the log has been read. When asked to stop, calls under way are finished
and new ones turned away with 503.
"""

import asyncio

from rein.v1 import events_pb2 as ev
from rein_bus.ports import Bus, Follower, Start
from rein_gateway.ports import Listener
from rein_gateway.wiring import Core
from rein_service import Status
from rein_service.clock import Clock


class Gateway:
    """Owns the followers; the listener is the composition root's."""

    def __init__(self, *, bus: Bus, core: Core, listener: Listener, clock: Clock) -> None:
        self._bus = bus
        self._attempts = core.attempts
        self._sampler = core.sampler
        self._nodes = core.nodes
        self._listener = listener
        self._clock = clock

    async def run(self, draining: asyncio.Event) -> None:
        """Until `draining` is set and the last call under way is over."""
        async with (
            self._bus.follow(ev.RolloutFenced) as fences,
            self._bus.follow(ev.NodeReported, start=Start.LATEST) as reports,
            asyncio.TaskGroup() as tasks,
        ):
            watching = [
                tasks.create_task(self._hear_fences(fences)),
                tasks.create_task(self._hear_nodes(reports)),
                tasks.create_task(self._attempts.drop_idle()),
            ]
            await fences.caught_up()
            await self._listener.start()
            await draining.wait()
            await self._listener.finish()
            for task in watching:
                task.cancel()

    def status(self) -> Status:
        """For Admin.GetStatus."""
        nodes = self._nodes.states(now_s=self._clock.monotonic())
        return Status(
            num_in_flight=self._attempts.num_under_way(),
            details={
                **self._attempts.details(),
                "calls_waiting": str(self._sampler.num_waiting),
                **{f"node {name}": state for name, state in nodes.items()},
            },
        )

    async def _hear_fences(self, fences: Follower) -> None:
        async for record in fences:
            if isinstance(record.message, ev.RolloutFenced):
                await self._attempts.fence(record.message.identity)

    async def _hear_nodes(self, reports: Follower) -> None:
        async for record in reports:
            if isinstance(record.message, ev.NodeReported):
                self._nodes.report(record.message, now_s=self._clock.monotonic())
                self._sampler.wake()
