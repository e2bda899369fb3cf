"""One member of a Kafka consumer group, with the traps of rebalances closed.

aiokafka hands out records between the moment a member gets its partitions and the moment the member has said where to
read them from. Here no record is handed out while a rebalance runs, and at its end every partition is put to an
explicit place, so that nothing fetched in between counts. What to commit, and when, is the owner's business.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError

from rein_bus.errors import ReinError
from rein_bus.kafka_client import bounded, new_consumer, translated
from rein_bus.metrics import REBALANCES
from rein_bus.settings import KafkaSettings

POLL_MS = 500


class Owner(Protocol):
    """Who the member reads for."""

    async def on_revoking(self) -> None:
        """A rebalance begins: the last moment to commit."""

    async def on_assigned(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """These partitions are ours, with their committed places; answer where to read on, None = not yet."""

    async def on_ready(self) -> None:
        """The rebalance is over: commits are possible again."""


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """A consumer in a group."""

    def __init__(self, settings: KafkaSettings, *, group: str, owner: Owner) -> None:
        self.id = f"{settings.prefix}-{group}"
        self._settings = settings
        self._owner = owner
        self._consumer: AIOKafkaConsumer = new_consumer(settings, group=self.id)
        self._is_rebalancing = True
        self._is_paused = False
        self._held: frozenset[TopicPartition] = frozenset()
        self._failure: ReinError | None = None

    @asynccontextmanager
    async def joined(self, topics: Collection[str]) -> AsyncIterator[None]:
        """Be a member while the block runs."""
        self._consumer.subscribe(topics=list(topics), listener=self)
        try:
            async with bounded(self._settings, f"join the group {self.id}"):
                await self._consumer.start()
            yield
        finally:
            async with bounded(self._settings, f"leave the group {self.id}"):
                await self._consumer.stop()

    async def poll(self, *, max_records: int) -> list[ConsumerRecord]:
        """Records of partitions that are ours, waited for shortly; none while a rebalance runs or all is paused."""
        if self._failure is not None:
            raise self._failure
        try:
            fetched = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=max_records)
        except KafkaError as error:
            raise translated(error, settings=self._settings, what=f"read for the group {self.id}") from error
        if self._is_rebalancing:
            return []
        return [record for records in fetched.values() for record in records]

    def seek(self, places: Mapping[TopicPartition, int]) -> None:
        """Read on from there. A rebalance that runs now asks the owner again at its end."""
        if not self._is_rebalancing:
            for partition, offset in places.items():
                self._consumer.seek(partition, offset)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch nothing of these until they are released."""
        self._held = self._held.union(partitions)
        self._apply_pauses()

    def release(self, partitions: Collection[TopicPartition]) -> None:
        self._held = self._held.difference(partitions)
        self._apply_pauses()

    def pause(self) -> None:
        self._is_paused = True
        self._apply_pauses()

    def resume(self) -> None:
        self._is_paused = False
        self._apply_pauses()

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed places; the first record where nothing was committed."""
        ordered = list(partitions)
        places = await asyncio.gather(*(self._consumer.committed(partition) for partition in ordered))
        firsts = await self._consumer.beginning_offsets(ordered) if None in places else {}
        return {
            partition: firsts[partition] if place is None else place
            for partition, place in zip(ordered, places, strict=True)
        }

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether it was committed; never while a rebalance runs."""
        if self._is_rebalancing:
            return False
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await self._consumer.commit(dict(offsets))
        except (KafkaError, TimeoutError):
            return False
        return True

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._owner.on_revoking()
        self._is_rebalancing = True
        REBALANCES.inc()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """aiokafka only logs what a listener raises, so it is kept for the next `poll`."""
        try:
            async with bounded(self._settings, f"take over partitions for the group {self.id}"):
                committed = await self.committed(assigned)
                places = await self._owner.on_assigned(committed)
        except ReinError as error:
            self._failure = error
            return
        if self._consumer.assignment() != set(assigned):
            return  # the next rebalance has begun; its end will ask again
        self._is_rebalancing = False
        self._held = frozenset(partition for partition, place in places.items() if place is None)
        self.seek({partition: place for partition, place in places.items() if place is not None})
        self._apply_pauses()
        await self._owner.on_ready()

    def _apply_pauses(self) -> None:
        """A rebalance forgets pauses, so they are applied from our own record of them."""
        for partition in self._consumer.assignment():
            if self._is_paused or partition in self._held:
                self._consumer.pause(partition)
            else:
                self._consumer.resume(partition)
