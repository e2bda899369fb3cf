"""The attempts this gateway serves: open ones, those that are over, and those that were fenced.

Invariants: an attempt that is over is never opened again, and what it ended with never changes; an attempt whose grant
is older than this process is not opened, since turns of it may be missing here; a fenced attempt is refused.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus

from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import AttemptId, RolloutId, attempt_id, rollout_id
from rein_dialects.reading import Memory
from rein_gateway.errors import CallDelayed, CallRefused
from rein_gateway.flights import Flight
from rein_gateway.recording import Record, Recorder
from rein_service.clock import Clock

#: Answers kept per attempt for a client's marked retry.
_KEPT_FLIGHTS = 4


@dataclass(eq=False, slots=True)
class Attempt:
    """An open one."""

    grant: pb.AttemptGrant
    record: Record = field(default_factory=Record)
    memory: Memory = field(default_factory=Memory)
    """Of the bodies of its requests."""
    flights: deque[Flight] = field(default_factory=lambda: deque(maxlen=_KEPT_FLIGHTS))
    """The newest calls, over or under way."""
    under_way: set[Flight] = field(default_factory=set)
    limit: str | None = None
    """Budget the policy has run out of: "turns" or "tokens"."""
    is_closing: bool = False
    touched_s: float = 0.0

    def add(self, flight: Flight) -> None:
        self.flights.append(flight)
        self.under_way.add(flight)
        flight.task.add_done_callback(lambda _: self.under_way.discard(flight))

    async def abort(self) -> None:
        """Give up every call under way; none is left when this returns."""
        self.is_closing = True
        tasks = [flight.task for flight in self.under_way]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@dataclass(frozen=True, slots=True)
class Ended:
    """What an attempt left."""

    num_turns: int
    limit: str | None
    expires_at_s: float
    """Unix time; the grant is worthless from then on, so this may be forgotten."""


class Attempts:
    """All attempts of this process."""

    def __init__(self, *, recorder: Recorder, clock: Clock, idle_s: float) -> None:
        """An open attempt nobody has called for `idle_s` is ended."""
        self._recorder = recorder
        self._clock = clock
        self._idle_s = idle_s
        self._open: dict[AttemptId, Attempt] = {}
        self._ended: dict[AttemptId, Ended] = {}
        self._fenced: set[AttemptId | RolloutId] = set()
        self._started_at_s = clock.now().timestamp()

    def opened(self, grant: pb.AttemptGrant) -> Attempt:
        """Raises CallRefused when nothing may be sampled for it."""
        name = attempt_id(grant.identity)
        if self.is_fenced(name):
            raise _over("attempt.fenced", "this attempt was given up by the run")
        if name in self._ended:
            raise _over("attempt.ended", "this attempt has ended")
        attempt = self._open.get(name)
        if attempt is None:
            if grant.issued_at_s < self._started_at_s:
                raise _over("attempt.lost", "this gateway started after the attempt and may have missed turns of it")
            attempt = self._open[name] = Attempt(grant)
        if attempt.is_closing:
            raise _over("attempt.ended", "this attempt is being ended")
        attempt.touched_s = self._clock.monotonic()
        return attempt

    def is_fenced(self, name: AttemptId) -> bool:
        return name in self._fenced or name.rollout in self._fenced

    async def end(self, grant: pb.AttemptGrant) -> Ended | None:
        """Abort its calls and close it; None = no call of it was ever seen here. Raises CallDelayed: ask again."""
        name = attempt_id(grant.identity)
        if ended := self._ended.get(name):
            return ended
        attempt = self._open.get(name)
        if attempt is None:
            return None
        await attempt.abort()
        await self._recorder.flush(attempt.record)
        return self._bury(name, attempt)

    async def fence(self, identity: pb.Identity) -> None:
        """Abort and refuse it from now on; attempt 0 stands for all attempts of the rollout."""
        rollout = rollout_id(identity)
        self._fenced.add(attempt_id(identity) if identity.attempt else rollout)
        for name in [each for each in self._open if each.rollout == rollout and self.is_fenced(each)]:
            attempt = self._open[name]
            await attempt.abort()
            self._bury(name, attempt)

    async def drop_idle(self) -> None:
        """For ever: end what nobody calls any more, forget what can never be called again."""
        while True:
            await self._clock.sleep(self._idle_s / 10)
            now_s, unix_s = self._clock.monotonic(), self._clock.now().timestamp()
            for attempt in list(self._open.values()):
                if now_s - attempt.touched_s > self._idle_s and not attempt.under_way:
                    await self._end_idle(attempt)
            self._ended = {name: ended for name, ended in self._ended.items() if ended.expires_at_s > unix_s}

    def num_under_way(self) -> int:
        return sum(len(attempt.under_way) for attempt in self._open.values())

    def details(self) -> dict[str, str]:
        return {
            "sessions": str(len(self._open)),
            "sessions_ended": str(len(self._ended)),
            "attempts_fenced": str(len(self._fenced)),
        }

    async def _end_idle(self, attempt: Attempt) -> None:
        try:
            await self.end(attempt.grant)
        except CallDelayed:
            attempt.is_closing = False  # the bus is away; the next round tries again

    def _bury(self, name: AttemptId, attempt: Attempt) -> Ended:
        """Safe to call twice: a second `end` or a fence may have come while the first one waited."""
        self._open.pop(name, None)
        ended = Ended(attempt.record.num_turns, attempt.limit, attempt.grant.expires_at_s)
        return self._ended.setdefault(name, ended)


def _over(code: str, detail: str) -> CallRefused:
    return CallRefused(code, detail, status=HTTPStatus.FORBIDDEN)
