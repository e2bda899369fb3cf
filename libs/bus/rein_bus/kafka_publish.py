"""Publishing to Kafka: in order, idempotent, acknowledged by all in-sync replicas, every send awaited."""

import asyncio
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaProducer
from google.protobuf.message import Message

from rein_bus.codec import Encoded, encode
from rein_bus.kafka_client import bounded
from rein_bus.ports import Place
from rein_bus.settings import KafkaSettings


class KafkaPublisher:
    """One idempotent producer. Sizes are checked against the topic table before anything is sent."""

    def __init__(self, producer: AIOKafkaProducer, *, settings: KafkaSettings, trace: Callable[[], str | None]) -> None:
        self._producer = producer
        self._settings = settings
        self._trace = trace

    async def publish(self, *messages: Message) -> list[Place]:
        """After BusTransient a record may still arrive: the brokers can come back while it is queued."""
        trace = self._trace()
        records = [encode(message, prefix=self._settings.prefix, trace=trace) for message in messages]
        async with bounded(self._settings, f"publish {_names(records)}"):
            return await send(self._producer, records=records, prefix=self._settings.prefix)


async def send(producer: AIOKafkaProducer, *, records: Sequence[Encoded], prefix: str) -> list[Place]:
    """Send in order and wait for every acknowledgement."""
    acknowledged = [
        await producer.send(
            record.topic.name(prefix), record.value, key=record.key.encode(), headers=list(record.headers)
        )
        for record in records
    ]
    places = await asyncio.gather(*acknowledged)
    return [
        Place(record.topic.message, place.partition, place.offset)
        for record, place in zip(records, places, strict=True)
    ]


def _names(records: Sequence[Encoded]) -> str:
    return ", ".join(sorted({record.topic.noun_event for record in records})) or "nothing"
