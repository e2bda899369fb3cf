"""Reading without a group on Kafka: followers of whole topics, and the newest record of a key.

All partitions are assigned by hand, nothing is committed, and only committed transactions are seen.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from google.protobuf.message import Message

from rein_bus.codec import partition_of, tables_of
from rein_bus.errors import BusMisconfigured
from rein_bus.following import LogFollower
from rein_bus.kafka_client import bounded, new_consumer, translated
from rein_bus.kafka_read import RecordReader
from rein_bus.ports import Record, Start
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of

POLL_MS = 500

#: Records looked at first, from the end backwards, for the newest of a key; then four times as many, and so on.
FIRST_WINDOW = 64

Slot = tuple[type[Message], int]


@asynccontextmanager
async def followed(
    messages: Sequence[type[Message]],
    *,
    start: Start | Mapping[Slot, int],
    settings: KafkaSettings,
    reader: RecordReader,
) -> AsyncIterator[LogFollower[ConsumerRecord]]:
    slots = {
        TopicPartition(topic.name(settings.prefix), partition): (message, partition)
        for message, topic in tables_of(messages).items()
        for partition in range(topic.partitions)
    }
    async with _reading(slots, settings=settings) as consumer:
        async with bounded(settings, "find the ends of the followed topics"):
            firsts, ends = await asyncio.gather(
                consumer.beginning_offsets(list(slots)), consumer.end_offsets(list(slots))
            )
        unread: dict[TopicPartition, int] = {}
        for partition, slot in slots.items():
            wanted = _first_wanted(slot, start=start, first=firsts[partition], end=ends[partition])
            consumer.seek(partition, wanted)
            if wanted < ends[partition]:
                unread[partition] = ends[partition]
        follower = LogFollower(KafkaFeed(consumer, unread=unread, reader=reader, settings=settings))
        async with bounded(settings, "read the followed topics"):
            await follower.open()
        yield follower


def _first_wanted(slot: Slot, *, start: Start | Mapping[Slot, int], first: int, end: int) -> int:
    if isinstance(start, Start):
        return end if start is Start.LATEST else first
    wanted = start.get(slot, first)
    if wanted > end:
        raise BusMisconfigured(
            "bus.offset_beyond_end",
            f"offset {wanted} was asked for in partition {slot[1]} of {topic_of(slot[0]).noun_event}, which ends at"
            f" {end}: the topic was emptied or made anew; start from a state that fits the topic",
        )
    return max(wanted, first)


class KafkaFeed:
    """The raw records of assigned partitions."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        *,
        unread: Mapping[TopicPartition, int],
        reader: RecordReader,
        settings: KafkaSettings,
    ) -> None:
        self._consumer = consumer
        self._reader = reader
        self._settings = settings
        self._unread = dict(unread)

    async def more(self) -> Sequence[ConsumerRecord]:
        try:
            if await self._has_just_caught_up():
                return []
            fetched = await self._consumer.getmany(timeout_ms=POLL_MS)
        except KafkaError as error:
            raise translated(error, settings=self._settings, what="read the followed topics") from error
        return [record for records in fetched.values() for record in records]

    async def read(self, raw: ConsumerRecord) -> Record[Message] | None:
        return await self._reader.read(raw)

    def is_behind(self) -> bool:
        return bool(self._unread)

    async def _has_just_caught_up(self) -> bool:
        """By positions, not by records: the end may lie behind records that nobody sees."""
        was_behind = self.is_behind()
        for partition, end in list(self._unread.items()):
            if await self._consumer.position(partition) >= end:
                del self._unread[partition]
        return was_behind and not self.is_behind()


async def newest(
    message: type[Message], *, key: str, settings: KafkaSettings, reader: RecordReader
) -> Record[Message] | None:
    """Looks backwards from the end of the key's partition, window by window."""
    topic = topic_of(message)
    partition = TopicPartition(topic.name(settings.prefix), partition_of(key, num_partitions=topic.partitions))
    async with _reading([partition], settings=settings) as consumer, bounded(settings, f"read {partition.topic}"):
        first = (await consumer.beginning_offsets([partition]))[partition]
        upper = (await consumer.end_offsets([partition]))[partition]
        window = FIRST_WINDOW
        while upper > first:
            lower = max(first, upper - window)
            consumer.seek(partition, lower)
            found = None
            while await consumer.position(partition) < upper:
                fetched = await consumer.getmany(timeout_ms=POLL_MS)
                for raw in fetched.get(partition, []):
                    if raw.offset < upper and raw.key == key.encode():
                        found = await reader.read(raw) or found
            if found is not None:
                return found
            upper, window = lower, window * 4
    return None


@asynccontextmanager
async def _reading(
    partitions: Sequence[TopicPartition] | Mapping[TopicPartition, Slot], *, settings: KafkaSettings
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = new_consumer(settings)
    try:
        async with bounded(settings, "open a consumer"):
            consumer.assign(list(partitions))
            await consumer.start()
        yield consumer
    finally:
        await consumer.stop()
