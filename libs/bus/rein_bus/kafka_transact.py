"""Read-process-write on Kafka: outputs and positions of one partition number in one transaction.

The members of the group get the same partition numbers of all topics (range assignment over equal partition counts;
checked at every assignment). Each partition number has a transactional id of its own, so taking a partition over
fences whoever had it before, and only then are the committed places read. What a fenced or interrupted commit did is
told by those places: the session takes the partition anew, and its user forgets its state.
"""

from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from google.protobuf.message import Message

from rein_bus.codec import encode, tables_of
from rein_bus.errors import BusFenced, BusMisconfigured, ReinError, RejectedError
from rein_bus.kafka_client import bounded, opened_producer
from rein_bus.kafka_group import GroupMember
from rein_bus.kafka_publish import send
from rein_bus.kafka_read import RecordReader
from rein_bus.metrics import FENCED_COMMITS
from rein_bus.ports import Assigned, Batch, Revoked
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of

FETCH_RECORDS = 2000

Places = dict[TopicPartition, int]


@dataclass(slots=True)
class _Handed:
    """A batch and the places after it."""

    batch: Batch
    places: Places


@dataclass(slots=True)
class _Owned:
    """A partition number that is ours: who writes for it, where it is read next, what awaits commit."""

    producer: AIOKafkaProducer
    closing: AsyncExitStack
    places: Places
    handed: list[_Handed] = field(default_factory=list)


class KafkaTransaction:
    """One session. One task iterates it."""

    def __init__(self, settings: KafkaSettings, *, group: str, reader: RecordReader) -> None:
        self._settings = settings
        self._member = GroupMember(settings, group=group, owner=self)
        self._reader = reader
        self._topics: list[str] = []
        self._assigned: frozenset[int] = frozenset()
        self._owned: dict[int, _Owned] = {}
        self._lost: list[_Owned] = []
        self._news: deque[Assigned | Revoked] = deque()
        self._fetched: dict[int, list[ConsumerRecord]] = {}

    @asynccontextmanager
    async def opened(self, messages: Sequence[type[Message]]) -> AsyncIterator[Self]:
        self._topics = [topic.name(self._settings.prefix) for topic in tables_of(messages).values()]
        try:
            async with self._member.joined(self._topics):
                yield self
        finally:
            self._lost.extend(self._owned.values())
            self._owned.clear()
            await self._close_lost()

    def __aiter__(self) -> AsyncIterator[Assigned | Batch | Revoked]:
        return self

    async def __anext__(self) -> Assigned | Batch | Revoked:
        while True:
            await self._close_lost()
            if self._news:
                if (news := await self._tell(self._news[0])) is not None:
                    return news
            elif self._fetched:
                if (batch := await self._batch(next(iter(self._fetched)))) is not None:
                    return batch
            else:
                for raw in await self._member.poll(max_records=FETCH_RECORDS):
                    self._fetched.setdefault(raw.partition, []).append(raw)

    async def seek(self, partition: int, *, offsets: Mapping[type[Message], int]) -> None:
        owned = self._owned_now(partition)
        async with bounded(self._settings, f"find the committed place of partition {partition}"):
            places = await self._member.committed(self._partitions(partition))
        for message, offset in offsets.items():
            places[TopicPartition(topic_of(message).name(self._settings.prefix), partition)] = offset
        owned.places = places
        owned.handed.clear()
        self._fetched.pop(partition, None)
        self._member.seek(places)

    async def commit(self, batch: Batch, *, outputs: Sequence[Message]) -> None:
        records = [encode(output, prefix=self._settings.prefix) for output in outputs]
        owned = self._owned_now(batch.partition)
        index = next((index for index, handed in enumerate(owned.handed) if handed.batch is batch), None)
        if index is None:
            raise BusFenced("bus.fenced", f"partition {batch.partition} was taken over since it handed this batch out")
        places = {place: offset for handed in owned.handed[: index + 1] for place, offset in handed.places.items()}
        has_ended = False
        try:
            async with bounded(self._settings, f"commit a batch of partition {batch.partition}"):
                await owned.producer.begin_transaction()
                await send(owned.producer, records=records, prefix=self._settings.prefix)
                await owned.producer.send_offsets_to_transaction(places, self._member.id)
                await owned.producer.commit_transaction()
            has_ended = True
        except RejectedError:
            raise
        except ReinError as error:
            FENCED_COMMITS.inc()
            raise BusFenced("bus.fenced", f"{error.detail}; partition {batch.partition} is taken anew") from error
        finally:
            if not has_ended:
                self._give_up(batch.partition)
        del owned.handed[: index + 1]

    async def on_revoking(self) -> None:
        self._fetched.clear()

    async def on_ready(self) -> None:
        pass

    async def on_assigned(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        after = frozenset(partition.partition for partition in places)
        for number in after:
            if missing := set(self._partitions(number)) - set(places):
                raise BusMisconfigured(
                    "bus.not_copartitioned",
                    f"partition {number} of {sorted(one.topic for one in missing)} went to another member of"
                    f" {self._member.id} than that of the other topics; give all of {self._topics} the same partitions",
                )
        for number in sorted(self._assigned - after):
            if number in self._owned:
                self._lose(number)
            else:
                self._news.remove(Assigned(number))
        self._news.extend(Assigned(number) for number in sorted(after - self._assigned))
        self._assigned = after
        return {
            partition: self._owned[partition.partition].places[partition]
            if partition.partition in self._owned
            else None
            for partition in places
        }

    async def _tell(self, news: Assigned | Revoked) -> Assigned | Revoked | None:
        """Take the partition over before saying so; None when it was lost meanwhile."""
        if isinstance(news, Assigned):
            owned = await self._taken_over(news.partition)
            if not self._news or self._news[0] is not news:
                self._lost.append(owned)
                return None
            self._owned[news.partition] = owned
            self._member.seek(owned.places)
            self._member.release(owned.places)
        self._news.popleft()
        return news

    async def _taken_over(self, number: int) -> _Owned:
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(
                opened_producer(self._settings, transactional_id=f"{self._member.id}-{number}")
            )
            async with bounded(self._settings, f"find the committed place of partition {number}"):
                places = await self._member.committed(self._partitions(number))
            return _Owned(producer, stack.pop_all(), places)

    async def _batch(self, number: int) -> Batch | None:
        """What was fetched of a partition; None when it was all poison, or lost meanwhile."""
        raws, owned = self._fetched[number], self._owned[number]
        read = [await self._reader.read(raw) for raw in raws]
        if self._fetched.get(number) is not raws:
            return None
        del self._fetched[number]
        places = {TopicPartition(raw.topic, number): raw.offset + 1 for raw in raws}
        owned.places.update(places)
        records = tuple(record for record in read if record is not None)
        if not records:
            return None
        batch = Batch(number, records)
        owned.handed.append(_Handed(batch, places))
        return batch

    def _give_up(self, number: int) -> None:
        """The outcome of a commit is unknown: lose the partition, and take it anew if it is still ours."""
        if number in self._owned:
            self._lose(number)
            self._news.append(Assigned(number))
            self._member.hold(self._partitions(number))

    def _lose(self, number: int) -> None:
        self._lost.append(self._owned.pop(number))
        self._fetched.pop(number, None)
        self._news.append(Revoked(number))

    def _owned_now(self, number: int) -> _Owned:
        if (owned := self._owned.get(number)) is None:
            raise BusFenced("bus.fenced", f"partition {number} is not ours; forget its state")
        return owned

    def _partitions(self, number: int) -> Collection[TopicPartition]:
        return [TopicPartition(topic, number) for topic in self._topics]

    async def _close_lost(self) -> None:
        while self._lost:
            await self._lost.pop().closing.aclose()
