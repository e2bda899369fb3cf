"""Publishing to Kafka: in order, idempotent, acknowledged by all in-sync replicas, every send awaited."""

import asyncio
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaProducer
from google.protobuf.message import Message

from rein_bus.codec import Encoded, encode
from rein_bus.errors import BusMisconfigured
from rein_bus.kafka_client import bounded
from rein_bus.metrics import PUBLISHED
from rein_bus.ports import Place
from rein_bus.settings import KafkaSettings

#: How long a topic may be unknown, seconds.
TOPIC_PATIENCE_S = 5.0


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
    """Send in order and wait for every acknowledgement. Raises BusMisconfigured for a topic the brokers do not know."""
    for name in {record.topic.name(prefix) for record in records}:
        await _check_known(producer, topic=name)
    acknowledged = [
        await producer.send(
            record.topic.name(prefix), record.value, key=record.key.encode(), headers=list(record.headers)
        )
        for record in records
    ]
    places = await asyncio.gather(*acknowledged)
    for record in records:
        PUBLISHED.labels(record.topic.noun_event).inc()
    return [
        Place(record.topic.message, place.partition, place.offset)
        for record, place in zip(records, places, strict=True)
    ]


def _names(records: Sequence[Encoded]) -> str:
    return ", ".join(sorted({record.topic.noun_event for record in records})) or "nothing"


async def _check_known(producer: AIOKafkaProducer, *, topic: str) -> None:
    """A topic may be just being made, so its absence counts after a while only."""
    try:
        async with asyncio.timeout(TOPIC_PATIENCE_S):
            await producer.partitions_for(topic)
    except TimeoutError as error:
        raise BusMisconfigured(
            "bus.topic_missing", f"the brokers know no topic {topic}; start the stack, or run a preflight, to make it"
        ) from error
