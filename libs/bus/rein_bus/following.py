"""Reading every record in order, and knowing exactly when the past has been read: the same on every implementation.

Invariant: while the follower is behind the end it found when it opened, one more record than the one in hand is
fetched before that is handed out. So `has_caught_up` is true at once after the last old record, even where the log
ends in records nobody sees (aborted transactions, their markers).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from rein_bus.ports import Record

Raw = TypeVar("Raw")


class Feed(Protocol[Raw]):
    """Where a follower's records come from."""

    async def more(self) -> Iterable[Raw]:
        """Wait for records, for a while; may return none."""

    async def read(self, raw: Raw) -> Record[Message] | None:
        """The decoded record; None when it was poison and is dead-lettered now."""

    def is_behind(self) -> bool:
        """Whether `more` has yet to return records that existed at the beginning."""


class LogFollower(Generic[Raw]):
    """A `Follower` over a feed. One task iterates it."""

    def __init__(self, feed: Feed[Raw]) -> None:
        self._feed = feed
        self._fetched: deque[Raw] = deque()
        self._caught_up = asyncio.Event()

    async def open(self) -> None:
        await self._look_ahead(1)
        self._note_progress()

    def __aiter__(self) -> AsyncIterator[Record[Message]]:
        return self

    async def __anext__(self) -> Record[Message]:
        while True:
            while not self._fetched:
                self._fetched.extend(await self._feed.more())
            await self._look_ahead(2)
            record = await self._feed.read(self._fetched[0])
            self._fetched.popleft()
            self._note_progress()
            if record is not None:
                return record

    async def caught_up(self) -> None:
        await self._caught_up.wait()

    def has_caught_up(self) -> bool:
        return self._caught_up.is_set()

    async def _look_ahead(self, num_records: int) -> None:
        while len(self._fetched) < num_records and self._feed.is_behind():
            self._fetched.extend(await self._feed.more())

    def _note_progress(self) -> None:
        if not self._fetched and not self._feed.is_behind():
            self._caught_up.set()
