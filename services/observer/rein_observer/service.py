"""The observer's loop: follow every topic into the boards, raise what the alert rules find.

Boards are folded from the whole log at each start, so a restart shows what was shown before. Alerts go out once per run
and code: those raised earlier are in the log too. It decides nothing about a run; a stop alert is the dispatcher's to
act on.
"""

import asyncio
import logging

from rein.v1 import events_pb2 as ev
from rein_bus.ports import Bus, Start
from rein_contracts.topics import TOPICS
from rein_observer import metrics
from rein_observer.domain.alerts import Limits, due
from rein_observer.domain.board import Boards, run_of
from rein_service.clock import Clock

log = logging.getLogger(__name__)

_UNSEEN = (ev.AssemblerCheckpoint,)
_FOLLOWED = tuple(topic.message for topic in TOPICS if topic.message not in _UNSEEN)


class Observer:
    """Keeps `boards` up to date."""

    def __init__(self, *, bus: Bus, boards: Boards, limits: Limits, clock: Clock) -> None:
        self._bus = bus
        self._boards = boards
        self._limits = limits
        self._clock = clock

    async def run(self, draining: asyncio.Event) -> None:
        """Work until `draining` is set."""
        async with self._bus.follow(*_FOLLOWED, start=Start.EARLIEST) as follower, asyncio.TaskGroup() as tasks:

            async def read() -> None:
                async for record in follower:
                    self._boards.apply(record.message)
                    metrics.EVENTS_READ.labels(type(record.message).__name__).inc()
                    if follower.has_caught_up():
                        await self._judge(run_of(record.message))

            reader = tasks.create_task(read())
            await draining.wait()
            reader.cancel()

    async def _judge(self, run: str) -> None:
        """Publish the alerts that are due for the run."""
        board = self._boards.runs.get(run)
        if board is None or board.changed.state not in (ev.RUN_STATE_RUNNING, ev.RUN_STATE_STOPPING):
            return
        for alert in due(board, limits=self._limits):
            alert.at.FromDatetime(self._clock.now())
            board.apply(alert)
            await self._bus.publish(alert)
            metrics.ALERTS_RAISED.labels(alert.code).inc()
            log.warning("alert.raised", extra={"run": run, "code": alert.code, "detail": alert.detail})
        if board.steps:
            metrics.TRAIN_PASS_RATE.set(board.steps[max(board.steps)].mean_reward)
        rates = [evaluation.pass_rate for _, evaluation in sorted(board.evaluations.items())]
        if rates and rates[-1] is not None:
            metrics.HELDOUT_PASS_RATE.set(rates[-1])
