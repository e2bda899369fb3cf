"""The work queue on Kafka: records of a group's topics, spread over its members.

Invariants: nothing is committed past an unfinished record, whatever the order of `done`; nothing is committed while a
rebalance runs; a partition that stays with this member keeps its unfinished records, so a rebalance hands nothing out
twice that is still ours. Commits are shared: `done` calls that meet wait for one commit together.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from aiokafka import ConsumerRecord, TopicPartition
from google.protobuf.message import Message

from rein_bus.codec import tables_of
from rein_bus.kafka_group import GroupMember
from rein_bus.kafka_read import RecordReader
from rein_bus.metrics import POSTPONED_COMMITS
from rein_bus.offsets import OffsetTracker
from rein_bus.ports import Record
from rein_bus.settings import KafkaSettings

log = logging.getLogger(__name__)

FETCH_RECORDS = 200


class KafkaWork:
    """A member's share of a work group."""

    def __init__(self, settings: KafkaSettings, *, group: str, reader: RecordReader) -> None:
        self._prefix = settings.prefix
        self._member = GroupMember(settings, group=group, owner=self)
        self._reader = reader
        self._trackers: dict[TopicPartition, OffsetTracker] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._fetched: deque[ConsumerRecord] = deque()
        self._taking = asyncio.Lock()
        self._committing = asyncio.Lock()
        self._running = asyncio.Event()
        self._running.set()

    @asynccontextmanager
    async def opened(self, messages: Sequence[type[Message]]) -> AsyncIterator[Self]:
        topics = [topic.name(self._prefix) for topic in tables_of(messages).values()]
        async with self._member.joined(topics):
            try:
                yield self
            finally:
                await self._commit()

    async def take(self) -> Record[Message]:
        async with self._taking:
            while True:
                await self._running.wait()
                if not self._fetched:
                    self._fetched.extend(await self._member.poll(max_records=FETCH_RECORDS))
                elif (record := await self._next()) is not None:
                    return record

    async def done(self, record: Record[Message]) -> None:
        partition = self._reader.partition_of(record.place)
        if (tracker := self._trackers.get(partition)) is not None:
            tracker.finish(record.place.offset)
            await self._commit()

    def pause(self) -> None:
        self._running.clear()
        self._member.pause()

    def resume(self) -> None:
        self._member.resume()
        self._running.set()

    async def on_revoking(self) -> None:
        self._fetched.clear()
        await self._commit()

    async def on_assigned(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        kept = {
            partition: tracker
            for partition, tracker in self._trackers.items()
            if partition in places and places[partition] <= tracker.next
        }
        self._trackers = kept | {
            partition: OffsetTracker(place) for partition, place in places.items() if partition not in kept
        }
        self._committed = dict(places)
        return {partition: tracker.next for partition, tracker in self._trackers.items()}

    async def on_ready(self) -> None:
        await self._commit()

    async def _next(self) -> Record[Message] | None:
        """The first of the fetched records; None when it is not for us to hand out (any more)."""
        raw = self._fetched[0]
        partition = TopicPartition(raw.topic, raw.partition)
        record = await self._reader.read(raw)
        if not self._fetched or self._fetched[0] is not raw:
            return None  # a rebalance came while a poison record was dead-lettered
        self._fetched.popleft()
        tracker = self._trackers[partition]
        tracker.begin(raw.offset)
        if record is None:
            tracker.finish(raw.offset)
            await self._commit()
        return record

    async def _commit(self) -> None:
        """Commit what is due; what could not be committed is due again at the next call."""
        async with self._committing:
            due = {
                partition: tracker.committable
                for partition, tracker in self._trackers.items()
                if tracker.committable > self._committed[partition]
            }
            if not due:
                return
            if await self._member.commit(due):
                self._committed.update({partition: due[partition] for partition in due if partition in self._committed})
            else:
                POSTPONED_COMMITS.inc()
                log.info("bus.commit_postponed", extra={"group": self._member.id, "num_partitions": len(due)})
