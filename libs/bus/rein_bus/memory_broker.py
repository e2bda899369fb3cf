"""The shared half of the memory bus: the log, the groups, and the faults a test can switch on.

One `MemoryBroker` stands for one cluster; every `MemoryBus` on it sees the same log. It keeps encoded bytes, so no
reader shares an object with a writer, and it places records by the same key hash as Kafka's clients. All of it runs
on one event loop. It does not compact and never expires a record.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import Message

from rein_bus.codec import Encoded, partition_of
from rein_contracts.topics import TOPICS, topic_of

Slot = tuple[type[Message], int]


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it lies in the log."""

    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    at_ms: int


@dataclass(slots=True)
class Faults:
    """What goes wrong; tests set these at any time."""

    redeliver: bool = False
    """`work` hands every record out twice."""

    refuse_publish: bool = False
    """`publish` and `commit` raise BusTransient and write nothing."""

    publish_delay_s: float = 0.0
    """A publish is written and acknowledged this much later."""


class Member(Protocol):
    """One session in a group."""

    @property
    def messages(self) -> Sequence[type[Message]]: ...

    @property
    def slots(self) -> frozenset[Slot]: ...

    def assign(self, slots: frozenset[Slot]) -> None:
        """These slots are the member's from now on, and no others."""


@dataclass(slots=True)
class Group:
    """Members in the order they joined, and the positions they committed."""

    members: list[Member] = field(default_factory=list)
    committed: dict[Slot, int] = field(default_factory=dict)

    def join(self, member: Member) -> None:
        self.members.append(member)
        self.spread()

    def leave(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            member.assign(frozenset())
            self.spread()

    def spread(self) -> None:
        """Ranges of partitions per topic: equal counts give one member the same partitions of every topic."""
        slots: dict[int, set[Slot]] = {index: set() for index in range(len(self.members))}
        for topic in TOPICS:
            takers = [index for index, member in enumerate(self.members) if topic.message in member.messages]
            for partition in range(topic.partitions if takers else 0):
                taker = takers[partition * len(takers) // topic.partitions]
                slots[taker].add((topic.message, partition))
        for index, member in enumerate(self.members):  # first what everyone loses, then what they gain
            member.assign(frozenset(slots[index]) & member.slots)
        for index, member in enumerate(self.members):
            member.assign(frozenset(slots[index]))


class MemoryBroker:
    """The log and the groups of one cluster."""

    def __init__(self, prefix: str = "rein") -> None:
        self.prefix = prefix
        self.faults = Faults()
        self._logs: dict[Slot, list[Stored]] = {
            (topic.message, partition): [] for topic in TOPICS for partition in range(topic.partitions)
        }
        self._groups: dict[str, Group] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    def append(self, record: Encoded) -> tuple[int, int]:
        """Write one record; its partition and offset."""
        partition = partition_of(record.key, num_partitions=record.topic.partitions)
        stored = Stored(record.key, record.value, record.headers, int(time.time() * 1000))
        return partition, self.plant(record.topic.message, partition=partition, record=stored)

    def plant(self, message: type[Message], *, partition: int, record: Stored) -> int:
        """Write any bytes, well-formed or not; the record's offset."""
        log = self._logs[(message, partition)]
        log.append(record)
        self.wake()
        return len(log) - 1

    def read(self, slot: Slot) -> Sequence[Stored]:
        return self._logs[slot]

    def end(self, slot: Slot) -> int:
        return len(self._logs[slot])

    def ends(self, messages: Sequence[type[Message]]) -> Mapping[Slot, int]:
        """The offset after the last record of every partition."""
        return {
            (message, partition): self.end((message, partition))
            for message in messages
            for partition in range(topic_of(message).partitions)
        }

    def group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group())

    def rebalance(self, group: str) -> None:
        """All members lose their partitions and get them anew: unfinished records return."""
        members = list(self.group(group).members)
        for member in members:
            member.assign(frozenset())
        self.group(group).spread()
        self.wake()

    def wake(self) -> None:
        """Something changed: whoever waits looks again."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Return after the next `wake`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
