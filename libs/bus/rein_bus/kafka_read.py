"""From aiokafka's records to Rein's, with the poison ones dead-lettered."""

from aiokafka import ConsumerRecord, TopicPartition
from google.protobuf.message import Message

from rein.v1.identity_pb2 import Failure
from rein_bus.codec import decode
from rein_bus.deadletters import DeadLetters, Letter, poison
from rein_bus.errors import BusRejected
from rein_bus.metrics import READ
from rein_bus.ports import Place, Record
from rein_contracts.topics import TOPICS, topic_of


class RecordReader:
    """Decodes for one consumer, called `service` in the dead letters."""

    def __init__(self, *, prefix: str, service: str, letters: DeadLetters) -> None:
        self._prefix = prefix
        self._service = service
        self._letters = letters
        self._topics = {topic.name(prefix): topic for topic in TOPICS}

    def place_of(self, raw: ConsumerRecord) -> Place:
        return Place(self._topics[raw.topic].message, raw.partition, raw.offset)

    def partition_of(self, place: Place) -> TopicPartition:
        return TopicPartition(topic_of(place.message).name(self._prefix), place.partition)

    async def read(self, raw: ConsumerRecord) -> Record[Message] | None:
        """None when it was poison and is dead-lettered now. Raises FatalError when that failed or came too often."""
        place = self.place_of(raw)
        try:
            message = decode(self._topics[raw.topic], value=raw.value, headers=raw.headers)
        except BusRejected as error:
            failure = poison(error)
        else:
            READ.labels(self._topics[raw.topic].noun_event).inc()
            return Record(message, (raw.key or b"").decode(errors="replace"), place, raw.timestamp)
        await self._letters.write(self._letter(raw, place=place, failure=failure))
        return None

    def _letter(self, raw: ConsumerRecord, *, place: Place, failure: Failure) -> Letter:
        return Letter(raw.topic, place, raw.key or b"", raw.value or b"", self._service, failure)
