"""The dispatcher's loop: read the log into the books, publish what the schedule asks for, answer Start, Stop and Get.

Everything known is a fold over the log, read from its start, so a crash at any line loses nothing: what was published
is read again, what was not is decided again. Nothing is decided before the log as it stood at start has been read.
One dispatcher may be active on a set of topics; it does not look at tokens, patches or rewards beyond their presence.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from google.protobuf.message import Message

from rein.v1 import dispatcher_pb2 as rpc
from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.ports import Bus, Start
from rein_dispatcher import metrics
from rein_dispatcher.domain.book import RunBook
from rein_dispatcher.domain.schedule import Scheduler
from rein_dispatcher.domain.spec import check
from rein_dispatcher.errors import ClusterBusy, RunExists, RunMissing
from rein_dispatcher.ports import Catalog
from rein_service.clock import Clock

log = logging.getLogger(__name__)

_ACTIVE = (ev.RUN_STATE_RUNNING, ev.RUN_STATE_STOPPING)
_FOLLOWED: tuple[type[Message], ...] = (
    ev.RunChanged,
    ev.GroupOpened,
    ev.RolloutRequested,
    ev.RolloutFenced,
    ev.RolloutLeased,
    ev.RolloutFinished,
    ev.RolloutGraded,
    ev.GroupAssembled,
    ev.PolicyPublished,
    ev.NodeReported,
    ev.AlertRaised,
)


class Dispatcher:
    """All runs of one deployment; at most one of them is active."""

    def __init__(self, *, bus: Bus, catalog: Catalog, clock: Clock, lease_s: float, tick_s: float) -> None:
        self._bus = bus
        self._catalog = catalog
        self._clock = clock
        self._lease_s = lease_s
        self._tick_s = tick_s
        self._books: dict[str, RunBook] = {}
        self._schedulers: dict[str, Scheduler] = {}
        self._early: defaultdict[str, list[Message]] = defaultdict(list)
        self._wake = asyncio.Event()
        self._is_ready = asyncio.Event()
        self._publishing = asyncio.Lock()

    async def run(self, draining: asyncio.Event) -> None:
        """Work until `draining` is set. Raises whatever ends reading or publishing."""
        async with self._bus.follow(*_FOLLOWED, start=Start.EARLIEST) as follower, asyncio.TaskGroup() as tasks:

            async def read() -> None:
                async for record in follower:
                    self._apply(record.message)
                    self._wake.set()

            reader = tasks.create_task(read())
            await follower.caught_up()
            self._is_ready.set()
            log.info("dispatcher.caught_up", extra={"num_runs": len(self._books)})
            while not draining.is_set():
                await self._tick()
                await self._rest(draining)
            reader.cancel()

    async def start_run(self, spec: ev.RunSpec) -> str:
        """Publish the run. Raises SpecRejected, RunExists, ClusterBusy."""
        await self._is_ready.wait()
        check(spec, harnesses=self._catalog.harnesses())
        tasks = self._catalog.tasks(spec.task_set)
        if spec.name in self._books:
            raise RunExists(spec.name)
        for name, book in self._books.items():
            if book.run.state in _ACTIVE:
                raise ClusterBusy(name)
        spec.eval.num_tasks = min(spec.eval.num_tasks or len(tasks.heldout), len(tasks.heldout))
        async with self._publishing:
            await self._publish([ev.RunChanged(run=spec.name, state=ev.RUN_STATE_RUNNING, spec=spec)])
        return spec.name

    async def stop_run(self, run: str) -> None:
        """Ask the run to end. Raises RunMissing."""
        await self._is_ready.wait()
        book = self._book(run)
        if book.run.state == ev.RUN_STATE_RUNNING:
            async with self._publishing:
                await self._publish([ev.RunChanged(run=run, state=ev.RUN_STATE_STOPPING, spec=book.spec)])

    async def get_run(self, run: str) -> rpc.GetRunResponse:
        """Where the run stands. Raises RunMissing."""
        await self._is_ready.wait()
        book = self._book(run)
        counts, groups = book.counts, book.open_groups()
        return rpc.GetRunResponse(
            run=book.run,
            policy_version=book.confirmed_version,
            step=book.published_step,
            num_open_groups=len(groups),
            num_open_rollouts=sum(group.opened.size for group in groups.values() if group.opened),
            counts=rpc.RunCounts(
                requested=counts.requested, rewarded=counts.rewarded, absent=counts.absent, retried=counts.retried
            ),
        )

    def num_open_groups(self) -> int:
        return sum(len(book.open_groups()) for book in self._books.values())

    def details(self) -> dict[str, str]:
        """For GetStatus."""
        return {
            f"run.{name}": f"{ev.RunState.Name(book.run.state)} version={book.confirmed_version}"
            for name, book in self._books.items()
        }

    def _book(self, run: str) -> RunBook:
        if run not in self._books:
            raise RunMissing(run)
        return self._books[run]

    async def _rest(self, draining: asyncio.Event) -> None:
        """Sleep one tick, or until something was read or draining began."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._wake, draining)]
        try:
            await asyncio.wait(waiting, timeout=self._tick_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiting:
                waiter.cancel()
        self._wake.clear()

    async def _tick(self) -> None:
        for name, book in self._books.items():
            if book.run.state not in _ACTIVE and not book.open_groups():
                continue
            async with self._publishing:
                await self._publish(self._scheduler(name).decide(book, now_s=self._clock.monotonic()))

    def _scheduler(self, run: str) -> Scheduler:
        if run not in self._schedulers:
            tasks = self._catalog.tasks(self._books[run].spec.task_set)
            self._schedulers[run] = Scheduler(tasks=tasks, lease_s=self._lease_s)
        return self._schedulers[run]

    async def _publish(self, messages: Sequence[Message]) -> None:
        """Publish, and record at once what the follower will bring again later."""
        if not messages:
            return
        for message in messages:
            message.at.FromDatetime(self._clock.now())  # type: ignore[attr-defined]
        await self._bus.publish(*messages)
        for message in messages:
            self._apply(message)
            metrics.EVENTS_PUBLISHED.labels(type(message).__name__).inc()
            log.info("dispatcher.published", extra={"event": type(message).__name__, "about": _about(message)})

    def _apply(self, message: Message) -> None:
        run = _run_of(message)
        if run == "":
            return
        if run not in self._books:
            if not isinstance(message, ev.RunChanged):
                self._early[run].append(message)
                return
            self._books[run] = RunBook(message)
        now_s = self._clock.monotonic()
        for earlier in [*self._early.pop(run, []), message]:
            self._books[run].apply(earlier, now_s=now_s)


def _run_of(message: Message) -> str:
    for field in ("run", "identity", "group"):
        if field in message.DESCRIPTOR.fields_by_name:
            value = getattr(message, field)
            return value.run if isinstance(value, pb.Identity) else value
    return ""


def _about(message: Message) -> str:
    for field in ("identity", "group"):
        if field in message.DESCRIPTOR.fields_by_name:
            identity = getattr(message, field)
            return f"{identity.group}/{identity.member}#{identity.attempt}"
    return _run_of(message)
