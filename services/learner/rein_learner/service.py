"""The learner's loop: serve the run that is on, one at a time.

What a run does wrong (its model, its losses, its log-probabilities, its checkpoints) ends the run and not the process:
a stop alert says why, and the run is left alone until the dispatcher has ended it. Everything else that goes wrong ends
the process; its successor goes on from the newest checkpoint.
"""

import asyncio
import logging

from rein.v1 import events_pb2 as ev
from rein_bus.errors import RejectedError
from rein_bus.ports import Follower
from rein_learner.course import Course, Means
from rein_learner.domain.runs import Runs

log = logging.getLogger(__name__)


class Learner:
    """All runs of one deployment, one after the other."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._runs = Runs()
        self._left: set[str] = set()
        """Runs that were told to stop."""
        self._course: Course | None = None
        self._wake = asyncio.Event()
        """Something changed: whoever waits looks again."""

    async def run(self, draining: asyncio.Event) -> None:
        """Work until `draining` is set; a step in hand is finished first."""
        async with self._means.bus.follow(ev.RunChanged) as follower, asyncio.TaskGroup() as tasks:
            helping = [tasks.create_task(self._read(follower)), tasks.create_task(self._wake_when(draining))]
            await follower.caught_up()
            while not draining.is_set():
                spec = next((spec for spec in self._runs.running() if spec.name not in self._left), None)
                if spec is None:
                    await self._wake.wait()
                    self._wake.clear()
                else:
                    await self._serve(spec, draining=draining, tasks=tasks)
            for helper in helping:
                helper.cancel()

    @property
    def num_held(self) -> int:
        return self._course.num_held if self._course else 0

    def details(self) -> dict[str, str]:
        """For GetStatus."""
        return {} if self._course is None else {"step": str(self._course.step)}

    async def _read(self, follower: Follower) -> None:
        async for record in follower:
            assert isinstance(record.message, ev.RunChanged)
            self._runs.apply(record.message)
            self._wake.set()

    async def _wake_when(self, draining: asyncio.Event) -> None:
        await draining.wait()
        self._wake.set()

    async def _serve(self, spec: ev.RunSpec, *, draining: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        def is_on() -> bool:
            return self._runs.is_running(spec.name) and not draining.is_set()

        try:
            course = self._course = await Course.opened(spec, means=self._means, wake=self._wake)
            async with self._means.bus.follow(ev.GroupAssembled, start=course.start) as follower:
                reading = tasks.create_task(course.read(follower))
                try:
                    await course.train(is_on=is_on)
                finally:
                    reading.cancel()
                    await asyncio.wait([reading])
            if not draining.is_set():
                await course.export()
        except RejectedError as error:
            await self._stop(spec.name, error)
        finally:
            self._course = None

    async def _stop(self, run: str, error: RejectedError) -> None:
        """Ask the dispatcher to end the run."""
        self._left.add(run)
        log.error("run.stopped", extra={"run": run, "code": error.code, "detail": error.detail})
        alert = ev.AlertRaised(run=run, code=error.code, detail=error.detail, severity=ev.SEVERITY_STOP)
        alert.at.FromDatetime(self._means.clock.now())
        await self._means.bus.publish(alert)
