"""Time as services see it: wall clock for stamps, monotonic for durations, sleep for waiting.

Tests use `FakeClock`, where time passes only by `advance`. No wall clock is ever used for elapsed time.
"""

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What code that waits or stamps is given."""

    def now(self) -> datetime:
        """UTC wall-clock time, for stamps."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary point, for durations."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """Stands still until `advance`; sleepers wake in the order of their deadlines."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), woken))
        await woken

    @property
    def num_sleepers(self) -> int:
        """Sleeps not yet over and not cancelled."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass; whoever wakes runs (and may sleep again) before later sleepers wake."""
        await _let_others_run()
        end_s = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= end_s:
            self._elapsed_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                await _let_others_run()
        self._elapsed_s = end_s
        await _let_others_run()


async def _let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
