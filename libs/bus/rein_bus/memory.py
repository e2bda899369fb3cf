"""The bus without a broker: for tests and for the flow of all services in one process.

Obeys the same contract as the Kafka bus (`tests/test_bus_contract.py` runs on both). Several handles on one
`MemoryBroker` share its log. Nothing survives the process. Faults are switched on at the broker (`broker.faults`,
`broker.rebalance`) and at a handle (`lose_connection`).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from google.protobuf.message import Message

from rein.v1.identity_pb2 import Failure
from rein_bus.codec import Encoded, decode, encode, partition_of, tables_of
from rein_bus.deadletters import LETTER_LIMIT, DeadLetters, Letter, LetterLimit, poison
from rein_bus.errors import BusFenced, BusRejected, BusTransient
from rein_bus.following import LogFollower
from rein_bus.memory_broker import MemoryBroker, Slot, Stored
from rein_bus.offsets import OffsetTracker
from rein_bus.ports import Assigned, Batch, Place, Record, Revoked, Start
from rein_contracts.topics import topic_of

BATCH_RECORDS = 500


class MemoryBus:
    """One process's connection to a MemoryBroker."""

    def __init__(self, broker: MemoryBroker, *, letter_limit: LetterLimit = LETTER_LIMIT) -> None:
        self._broker = broker
        self._is_connected = True
        self._sessions: list[tuple[str, MemoryWork | MemoryTransaction]] = []
        self.dead_letters = DeadLetters(self.publish, limit=letter_limit)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.lose_connection()

    def lose_connection(self) -> None:
        """As if the network went: calls raise BusTransient, memberships end."""
        self._is_connected = False
        for group, session in self._sessions:
            self._broker.group(group).leave(session)
        self._broker.wake()

    def restore_connection(self) -> None:
        self._is_connected = True
        for group, session in self._sessions:
            self._broker.group(group).join(session)
        self._broker.wake()

    async def publish(self, *messages: Message) -> list[Place]:
        records = [encode(message, prefix=self._broker.prefix) for message in messages]
        await asyncio.sleep(self._broker.faults.publish_delay_s)  # others run meanwhile, as with a real broker
        self._check_writable()
        return self._append(records)

    @asynccontextmanager
    async def work(self, *messages: type[Message], group: str) -> AsyncIterator["MemoryWork"]:
        work = MemoryWork(self, broker=self._broker, messages=messages, group=group)
        async with self._membership(group, session=work):
            yield work

    @asynccontextmanager
    async def follow(
        self, *messages: type[Message], start: Start | Mapping[tuple[type[Message], int], int] = Start.EARLIEST
    ) -> AsyncIterator[LogFollower[tuple[Slot, int]]]:
        tables_of(messages)
        self._check_connected()
        ends = self._broker.ends(messages)
        if start is Start.LATEST:
            positions = dict(ends)
        else:
            named = {} if isinstance(start, Start) else start
            positions = {slot: named.get(slot, 0) for slot in ends}
        follower = LogFollower(MemoryFeed(self, broker=self._broker, positions=positions, ends=ends))
        await follower.open()
        yield follower

    @asynccontextmanager
    async def transact(self, *messages: type[Message], group: str) -> AsyncIterator["MemoryTransaction"]:
        session = MemoryTransaction(self, broker=self._broker, messages=messages, group=group)
        async with self._membership(group, session=session):
            yield session

    async def newest(self, message: type[Message], *, key: str) -> Record[Message] | None:
        self._check_connected()
        slot = (message, partition_of(key, num_partitions=topic_of(message).partitions))
        log = self._broker.read(slot)
        for offset in range(len(log) - 1, -1, -1):
            if log[offset].key == key:
                return _record(slot, offset=offset, stored=log[offset])
        return None

    async def dead_letter(self, record: Record[Message], *, failure: Failure, service: str) -> None:
        place = record.place
        stored = self._broker.read((place.message, place.partition))[place.offset]
        await self.dead_letters.write(self._letter(place, stored=stored, service=service, failure=failure))

    async def read(self, slot: Slot, *, offset: int, service: str) -> Record[Message] | None:
        """The record there; None when it was poison and is dead-lettered now."""
        stored = self._broker.read(slot)[offset]
        try:
            return _record(slot, offset=offset, stored=stored)
        except BusRejected as error:
            place = Place(slot[0], slot[1], offset)
            letter = self._letter(place, stored=stored, service=service, failure=poison(error))
        await self.dead_letters.write(letter)
        return None

    async def transaction(self, records: Sequence[Message], *, apply: Callable[[], None]) -> None:
        """Write `records` and whatever `apply` does, or nothing."""
        encoded = [encode(record, prefix=self._broker.prefix) for record in records]
        await asyncio.sleep(0)
        self._check_writable()
        apply()
        self._append(encoded)

    def _append(self, records: Iterable[Encoded]) -> list[Place]:
        return [Place(record.topic.message, *self._broker.append(record)) for record in records]

    def _letter(self, place: Place, *, stored: Stored, service: str, failure: Failure) -> Letter:
        topic = topic_of(place.message).name(self._broker.prefix)
        return Letter(topic, place, stored.key.encode(), stored.value, service, failure)

    @asynccontextmanager
    async def _membership(self, group: str, *, session: "MemoryWork | MemoryTransaction") -> AsyncIterator[None]:
        tables_of(session.messages)
        self._check_connected()
        entry = (group, session)
        self._sessions.append(entry)
        self._broker.group(group).join(session)
        self._broker.wake()
        try:
            yield
        finally:
            self._sessions.remove(entry)
            self._broker.group(group).leave(session)
            self._broker.wake()

    def _check_connected(self) -> None:
        if not self._is_connected:
            raise BusTransient("bus.unreachable", "the memory broker is away (a test's doing)")

    def _check_writable(self) -> None:
        self._check_connected()
        if self._broker.faults.refuse_publish:
            raise BusTransient("bus.unreachable", "the memory broker refuses to write (a test's doing)")


class MemoryWork:
    """A member's share of a work group."""

    def __init__(self, bus: MemoryBus, *, broker: MemoryBroker, messages: Sequence[type[Message]], group: str) -> None:
        self.messages = messages
        self._bus, self._broker, self._name = bus, broker, group
        self._group = broker.group(group)
        self._trackers: dict[Slot, OffsetTracker] = {}
        self._again: deque[tuple[Slot, int]] = deque()
        self._is_paused = False

    @property
    def slots(self) -> frozenset[Slot]:
        return frozenset(self._trackers)

    def assign(self, slots: frozenset[Slot]) -> None:
        for slot in self.slots - slots:
            del self._trackers[slot]
        for slot in slots - self.slots:
            self._trackers[slot] = OffsetTracker(self._group.committed.get(slot, 0))
        self._again = deque(again for again in self._again if again[0] in self._trackers)

    async def take(self) -> Record[Message]:
        while True:
            if self._is_paused or (found := self._next()) is None:
                await self._broker.changed()
                continue
            slot, offset = found
            record = await self._bus.read(slot, offset=offset, service=self._name)
            if record is not None:
                return record
            self._finish(slot, offset=offset)

    async def done(self, record: Record[Message]) -> None:
        self._finish((record.place.message, record.place.partition), offset=record.place.offset)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._broker.wake()

    def _next(self) -> tuple[Slot, int] | None:
        if self._again:
            return self._again.popleft()
        for slot, tracker in self._trackers.items():
            if (offset := tracker.next) < self._broker.end(slot):
                tracker.begin(offset)
                self._trackers[slot] = self._trackers.pop(slot)  # the others first next time
                if self._broker.faults.redeliver:
                    self._again.append((slot, offset))
                return slot, offset
        return None

    def _finish(self, slot: Slot, *, offset: int) -> None:
        if (tracker := self._trackers.get(slot)) is not None:
            tracker.finish(offset)
            self._group.committed[slot] = max(self._group.committed.get(slot, 0), tracker.committable)


class MemoryFeed:
    """The places of a follower's records, from its positions on."""

    def __init__(
        self, bus: MemoryBus, *, broker: MemoryBroker, positions: dict[Slot, int], ends: Mapping[Slot, int]
    ) -> None:
        self._bus, self._broker = bus, broker
        self._positions, self._ends = positions, ends

    async def more(self) -> Sequence[tuple[Slot, int]]:
        found = [
            (slot, offset)
            for slot, position in self._positions.items()
            for offset in range(position, self._broker.end(slot))
        ]
        self._positions.update((slot, offset + 1) for slot, offset in found)
        if not found:
            await self._broker.changed()
        return found

    async def read(self, raw: tuple[Slot, int]) -> Record[Message] | None:
        return await self._bus.read(raw[0], offset=raw[1], service="follower")

    def is_behind(self) -> bool:
        return any(self._positions[slot] < end for slot, end in self._ends.items())


class MemoryTransaction:
    """A read-process-write session over co-partitioned topics."""

    def __init__(self, bus: MemoryBus, *, broker: MemoryBroker, messages: Sequence[type[Message]], group: str) -> None:
        self.messages = messages
        self.slots: frozenset[Slot] = frozenset()
        self._bus, self._broker, self._name = bus, broker, group
        self._group = broker.group(group)
        self._news: deque[Assigned | Revoked] = deque()
        self._positions: dict[int, dict[type[Message], int]] = {}
        self._handed: dict[int, list[Batch]] = {}

    def assign(self, slots: frozenset[Slot]) -> None:
        before, after = _partitions(self.slots), _partitions(slots)
        self.slots = slots
        for partition in sorted(before - after):
            if partition in self._positions:
                del self._positions[partition], self._handed[partition]
                self._news.append(Revoked(partition))
            else:  # never told of, so nothing to forget
                self._news.remove(Assigned(partition))
        self._news.extend(Assigned(partition) for partition in sorted(after - before))

    def __aiter__(self) -> AsyncIterator[Assigned | Batch | Revoked]:
        return self

    async def __anext__(self) -> Assigned | Batch | Revoked:
        while True:
            if self._news:
                return self._tell(self._news.popleft())
            for partition in list(self._positions):
                if (batch := await self._batch(partition)) is not None:
                    return batch
            if not self._news:
                await self._broker.changed()

    async def seek(self, partition: int, *, offsets: Mapping[type[Message], int]) -> None:
        self._check_owned(partition)
        self._handed[partition].clear()
        self._positions[partition] = {**self._committed(partition), **offsets}

    async def commit(self, batch: Batch, *, outputs: Sequence[Message]) -> None:
        def apply() -> None:
            handed = self._handed.get(batch.partition, [])
            place = next((index for index, one in enumerate(handed) if one is batch), None)
            if place is None:
                raise BusFenced(
                    "bus.fenced",
                    f"{self._name} lost partition {batch.partition} after it was handed this batch; forget its state",
                )
            for covered in handed[: place + 1]:
                for record in covered.records:
                    self._group.committed[(record.place.message, batch.partition)] = record.place.offset + 1
            del handed[: place + 1]

        try:
            await self._bus.transaction(outputs, apply=apply)
        except BusTransient as error:
            self._give_up(batch.partition)
            raise BusFenced("bus.fenced", f"{error.detail}; partition {batch.partition} is taken anew") from error

    def _give_up(self, partition: int) -> None:
        """As on Kafka, where the outcome of such a commit is unknown: lose the partition and take it anew."""
        if partition in self._positions:
            del self._positions[partition], self._handed[partition]
            self._news.extend((Revoked(partition), Assigned(partition)))

    def _tell(self, news: Assigned | Revoked) -> Assigned | Revoked:
        if isinstance(news, Assigned):
            self._positions[news.partition] = self._committed(news.partition)
            self._handed[news.partition] = []
        return news

    async def _batch(self, partition: int) -> Batch | None:
        positions = self._positions.pop(partition)
        self._positions[partition] = positions
        records: list[Record[Message]] = []
        for message in self.messages:
            slot = (message, partition)
            while len(records) < BATCH_RECORDS and positions[message] < self._broker.end(slot):
                offset = positions[message]
                positions[message] = offset + 1
                record = await self._bus.read(slot, offset=offset, service=self._name)
                if record is not None:
                    records.append(record)
        if not records or self._positions.get(partition) is not positions:
            return None
        batch = Batch(partition, tuple(records))
        self._handed[partition].append(batch)
        return batch

    def _committed(self, partition: int) -> dict[type[Message], int]:
        return {message: self._group.committed.get((message, partition), 0) for message in self.messages}

    def _check_owned(self, partition: int) -> None:
        if partition not in self._positions:
            raise BusFenced("bus.fenced", f"{self._name} does not own partition {partition}; forget its state")


def _partitions(slots: frozenset[Slot]) -> frozenset[int]:
    return frozenset(partition for _, partition in slots)


def _record(slot: Slot, *, offset: int, stored: Stored) -> Record[Message]:
    message, partition = slot
    decoded = decode(topic_of(message), value=stored.value, headers=stored.headers)
    return Record(decoded, stored.key, Place(message, partition, offset), stored.at_ms)
