"""The runner's loop: take a request, write the lease, run the attempt outside the poll loop, publish its end.

Taking is `TAKEN` published, then the request marked done; only the attempt's first `TAKEN` in the log runs, so a
request delivered twice runs once. The lease is renewed three times in its length; one that cannot be renewed, and a
fence, end the attempt at once. Every attempt this runner owns ends in one `RolloutFinished`, unless the process dies;
then the lease runs out and the dispatcher asks for the next attempt.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.errors import BusTransient
from rein_bus.ports import Bus, Follower, Place, Record, Start, Work
from rein_contracts.ids import AttemptId, attempt_id, rollout_id
from rein_runner import metrics
from rein_runner.attempt import Attempt, Means, started
from rein_runner.domain.leases import Leases
from rein_runner.domain.verdict import failure
from rein_service.logs import bound
from rein_service.publishing import publish_patiently
from rein_service.waiting import unless

log = logging.getLogger(__name__)

GROUP = "runners"
RENEWALS_PER_LEASE = 3
#: Share of the drain limit that rollouts get to finish by themselves.
FINISH_SHARE = 0.6

DRAINED = failure(pb.OWNER_OPERATOR, "operator.drained", "the runner was stopped before the rollout had ended")
FENCED = failure(pb.OWNER_OPERATOR, "operator.fenced", "the dispatcher fenced the attempt while it ran")
LEASE_LOST = failure(pb.OWNER_OPERATOR, "operator.lease_lost", "the lease could not be renewed in time")


@dataclass(slots=True)
class Live:
    """An attempt this runner has taken."""

    request: ev.RolloutRequested
    taken: Place
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    """Its TAKEN has come back, so it is known who was first."""
    work: "asyncio.Task[ev.RolloutFinished] | None" = None
    stopped: pb.Failure | None = None

    def stop(self, why: pb.Failure) -> None:
        if self.stopped is None:
            self.stopped = why
            self.seen.set()
            if self.work is not None:
                self.work.cancel()


class Runner:
    """One process's share of the rollouts."""

    def __init__(self, *, bus: Bus, means: Means, capacity: int, drain_s: float) -> None:
        self._bus = bus
        self._means = means
        self._capacity = capacity
        self._drain_s = drain_s
        self._leases = Leases()
        self._live: dict[AttemptId, Live] = {}
        self._one_ended = asyncio.Event()

    @property
    def num_in_flight(self) -> int:
        return len(self._live)

    async def run(self, draining: asyncio.Event) -> None:
        """Work until `draining` is set and nothing is in hand."""
        async with (
            self._bus.follow(ev.RolloutLeased, ev.RolloutFenced, start=Start.EARLIEST) as follower,
            asyncio.TaskGroup() as tasks,
        ):
            reader = tasks.create_task(self._read(follower), name="runner-reader")
            await follower.caught_up()
            async with self._bus.work(ev.RolloutRequested, group=GROUP) as work:
                while not draining.is_set():
                    await self._room(work, draining=draining)
                    record = await unless(draining, work.take())
                    if record is not None and (live := await self._begin(record, work=work)) is not None:
                        tasks.create_task(self._attempt(live), name=f"attempt-{attempt_id(live.request.identity)}")
                await self._wind_up()
            reader.cancel()

    async def _room(self, work: Work, *, draining: asyncio.Event) -> None:
        """Wait while the hands are full."""
        if len(self._live) < self._capacity:
            return
        work.pause()
        while len(self._live) >= self._capacity and not draining.is_set():
            self._one_ended.clear()
            await unless(draining, self._one_ended.wait())
        work.resume()

    async def _begin(self, record: Record[Message], *, work: Work) -> Live | None:
        """Take the request; None = it is not to be run here."""
        request = record.message
        assert isinstance(request, ev.RolloutRequested)
        attempt = attempt_id(request.identity)
        reason = "taken" if self._leases.is_taken(attempt) else "fenced" if self._leases.is_fenced(attempt) else ""
        if reason or attempt in self._live:
            metrics.DUPLICATES.labels(reason=reason or "taken").inc()
            log.info("request.dropped", extra={"attempt": str(attempt), "reason": reason or "taken"})
            await work.done(record)
            return None
        lease = self._lease(request, state=ev.LEASE_STATE_TAKEN)
        [place] = await publish_patiently(self._bus, lease, clock=self._means.clock)
        live = self._live[attempt] = Live(request, taken=place)
        metrics.IN_FLIGHT.inc()
        self._settle(attempt)
        await work.done(record)
        return live

    async def _attempt(self, live: Live) -> None:
        attempt = attempt_id(live.request.identity)
        try:
            with bound(rollout=str(attempt.rollout), attempt=attempt.attempt):
                await live.seen.wait()
                place = live.taken
                if live.stopped is None and not self._leases.is_owner(
                    attempt, partition=place.partition, offset=place.offset
                ):
                    metrics.DUPLICATES.labels(reason="raced").inc()
                    log.info("request.dropped", extra={"reason": "raced"})
                    return
                await self._finish(live, finished=await self._worked(live))
        finally:
            del self._live[attempt]
            metrics.IN_FLIGHT.dec()
            self._one_ended.set()

    async def _worked(self, live: Live) -> ev.RolloutFinished:
        """Run the attempt under its lease."""
        if live.stopped is not None:
            return self._stopped(live)
        log.info("attempt.started", extra={"harness": live.request.harness, "task": live.request.identity.task})
        live.work = asyncio.create_task(Attempt(live.request, means=self._means).run())
        keeper = asyncio.create_task(self._keep_lease(live))
        try:
            await asyncio.wait([live.work, keeper], return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                keeper.result()  # raises what nobody foresaw; a lease that is lost has stopped the work
            return await live.work
        except asyncio.CancelledError:
            if live.stopped is None or _is_cancelled():
                raise
            return self._stopped(live)
        finally:
            for task in (live.work, keeper):
                task.cancel()
            await asyncio.wait([live.work, keeper])

    def _stopped(self, live: Live) -> ev.RolloutFinished:
        finished = started(live.request, runner=self._means.settings.instance)
        finished.failure.CopyFrom(live.stopped or DRAINED)
        finished.at.FromDatetime(self._means.clock.now())
        return finished

    async def _finish(self, live: Live, *, finished: ev.RolloutFinished) -> None:
        """Publish the end. The release comes last: whoever sees it has no later renewal to fear."""
        code = finished.failure.code or "none"
        metrics.FINISHED.labels(harness=finished.harness, code=code).inc()
        metrics.WALL_S.observe(finished.wall_s)
        metrics.CPU_S.observe(finished.cpu_s)
        metrics.PATCH_BYTES.observe(finished.patch.size_bytes)
        release = self._lease(live.request, state=ev.LEASE_STATE_RELEASED)
        await publish_patiently(self._bus, finished, release, clock=self._means.clock)
        about = {"failure": code, "turns": finished.num_turns, "wall_s": round(finished.wall_s, 2)}
        log.info("attempt.finished", extra={**about, "detail": finished.failure.detail})

    async def _keep_lease(self, live: Live) -> None:
        """Renew until cancelled; a lease that ran out ends the attempt."""
        clock, lease_s = self._means.clock, live.request.lease_s
        held_since_s = clock.monotonic()
        while clock.monotonic() - held_since_s < lease_s:
            await clock.sleep(lease_s / RENEWALS_PER_LEASE)
            asked_s = clock.monotonic()
            try:
                async with asyncio.timeout(lease_s):
                    await self._bus.publish(self._lease(live.request, state=ev.LEASE_STATE_RENEWED))
                held_since_s = asked_s
            except (BusTransient, TimeoutError) as error:
                log.warning("lease.not_renewed", extra={"detail": str(error)})
        live.stop(LEASE_LOST)

    def _lease(self, request: ev.RolloutRequested, *, state: ev.LeaseState.ValueType) -> ev.RolloutLeased:
        lease = ev.RolloutLeased(
            identity=request.identity, state=state, runner=self._means.settings.instance, lease_s=request.lease_s
        )
        lease.at.FromDatetime(self._means.clock.now())
        return lease

    async def _read(self, follower: Follower) -> None:
        async for record in follower:
            message = record.message
            if isinstance(message, ev.RolloutFenced):
                identity = message.identity
                everything = message.is_final or identity.attempt == 0
                self._leases.fenced(rollout_id(identity), attempt=None if everything else identity.attempt)
                for attempt, live in tuple(self._live.items()):
                    if self._leases.is_fenced(attempt):
                        live.stop(FENCED)
            elif isinstance(message, ev.RolloutLeased) and message.state == ev.LEASE_STATE_TAKEN:
                attempt = attempt_id(message.identity)
                self._leases.taken(attempt, partition=record.place.partition, offset=record.place.offset)
                self._settle(attempt)

    def _settle(self, attempt: AttemptId) -> None:
        live = self._live.get(attempt)
        if live is not None and self._leases.is_taken(attempt):
            live.seen.set()

    async def _wind_up(self) -> None:
        """Let rollouts in hand finish, then hand back the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s * FINISH_SHARE):
                await self._all_ended()
        for live in tuple(self._live.values()):
            live.stop(DRAINED)
        await self._all_ended()

    async def _all_ended(self) -> None:
        while self._live:
            self._one_ended.clear()
            await self._one_ended.wait()


def _is_cancelled() -> bool:
    """Whether this task itself is being cancelled, rather than one it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
