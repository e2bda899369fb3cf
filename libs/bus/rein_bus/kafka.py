"""The bus on Kafka. Opening it reaches the brokers; `rein_bus.preflight` says whether the cluster fits.

One idempotent producer for `publish`; each `work`, `follow` and `transact` opens clients of its own, in its own
context manager. `trace` is asked for the W3C traceparent of each publish.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Self

from google.protobuf.message import Message

from rein.v1.identity_pb2 import Failure
from rein_bus.deadletters import LETTER_LIMIT, DeadLetters, Letter, LetterLimit
from rein_bus.kafka_client import opened_producer
from rein_bus.kafka_follow import followed, newest
from rein_bus.kafka_publish import KafkaPublisher
from rein_bus.kafka_read import RecordReader
from rein_bus.kafka_transact import KafkaTransaction
from rein_bus.kafka_work import KafkaWork
from rein_bus.ports import Follower, Place, Record, Start, Transaction, Work
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of


def no_trace() -> str | None:
    """Publishes carry no trace context."""
    return None


class KafkaBus:
    """One process's connection to a cluster; an async context manager."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        letter_limit: LetterLimit = LETTER_LIMIT,
        trace: Callable[[], str | None] = no_trace,
    ) -> None:
        self._settings = settings
        self._trace = trace
        self._closing = AsyncExitStack()
        self._publisher: KafkaPublisher | None = None
        self.dead_letters = DeadLetters(self.publish, limit=letter_limit)

    async def __aenter__(self) -> Self:
        producer = await self._closing.enter_async_context(opened_producer(self._settings))
        self._publisher = KafkaPublisher(producer, settings=self._settings, trace=self._trace)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._publisher = None
        await self._closing.aclose()

    async def publish(self, *messages: Message) -> list[Place]:
        if self._publisher is None:
            raise RuntimeError("the bus is not open: use it as an async context manager")
        return await self._publisher.publish(*messages)

    def work(self, *messages: type[Message], group: str) -> AbstractAsyncContextManager[Work]:
        return KafkaWork(self._settings, group=group, reader=self._reader(group)).opened(messages)

    @asynccontextmanager
    async def follow(
        self, *messages: type[Message], start: Start | Mapping[tuple[type[Message], int], int] = Start.EARLIEST
    ) -> AsyncIterator[Follower]:
        reader = self._reader("follower")
        async with followed(messages, start=start, settings=self._settings, reader=reader) as follower:
            yield follower

    def transact(self, *messages: type[Message], group: str) -> AbstractAsyncContextManager[Transaction]:
        return KafkaTransaction(self._settings, group=group, reader=self._reader(group)).opened(messages)

    async def newest(self, message: type[Message], *, key: str) -> Record[Message] | None:
        return await newest(message, key=key, settings=self._settings, reader=self._reader("newest"))

    async def dead_letter(self, record: Record[Message], *, failure: Failure, service: str) -> None:
        place = record.place
        topic = topic_of(place.message).name(self._settings.prefix)
        value = record.message.SerializeToString()
        await self.dead_letters.write(Letter(topic, place, record.key.encode(), value, service, failure))

    def _reader(self, service: str) -> RecordReader:
        return RecordReader(prefix=self._settings.prefix, service=service, letters=self.dead_letters)
