"""From messages to records and back, the same on every implementation.

A record's value is one serialized message; its headers name the message type and the digest of the schema that wrote
it. A reader refuses a record whose header names another type than its topic carries, or whose bytes do not decode.
It does not refuse another schema digest: protobuf's own rules make old and new schemas readable by each other.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from aiokafka.partitioner import murmur2
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError, Message

from rein_bus.errors import BusRejected
from rein_contracts.topics import Topic, key_of, topic_of

TYPE_HEADER = "rein-type"
SCHEMA_HEADER = "rein-schema"
TRACE_HEADER = "traceparent"

#: Room for key, headers and batch framing beside the largest value, bytes.
OVERHEAD_BYTES = 8 * 1024

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message ready to be sent."""

    topic: Topic
    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def encode(message: Message, *, prefix: str, trace: str | None = None) -> Encoded:
    """Raises BusRejected for a value over the topic's limit or a message that no topic carries."""
    try:
        topic = topic_of(type(message))
    except KeyError as error:
        raise BusRejected(
            "bus.no_topic", f"no topic carries {type(message).DESCRIPTOR.full_name}; see docs/topics.md"
        ) from error
    value = message.SerializeToString()
    if len(value) > topic.max_bytes:
        raise BusRejected(
            "bus.too_large",
            f"a {type(message).DESCRIPTOR.full_name} of {len(value)} bytes is over the limit of topic"
            f" {topic.name(prefix)}, {topic.max_bytes} bytes; put its large fields into the blob store",
            topic=topic.name(prefix),
            size_bytes=len(value),
            limit_bytes=topic.max_bytes,
        )
    return Encoded(topic, key_of(message), value, _headers(type(message), trace))


def decode(topic: Topic, *, value: bytes | None, headers: Headers) -> Message:
    """Raises BusRejected for a record that is not of the topic's message type or does not decode."""
    wanted = topic.message.DESCRIPTOR.full_name
    named = next((content.decode(errors="replace") for name, content in headers if name == TYPE_HEADER), None)
    if named != wanted:
        raise BusRejected("bus.wrong_type", f"the record's type header is {named!r}, the topic carries {wanted}")
    if value is None:
        raise BusRejected("bus.undecodable", f"the record has no value, wanted a {wanted}")
    message = topic.message()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise BusRejected("bus.undecodable", f"the record's value is no {wanted}: {error}") from error
    return message


def header(headers: Headers, name: str) -> str | None:
    """The first header called `name`."""
    return next((content.decode(errors="replace") for title, content in headers if title == name), None)


def tables_of(messages: Sequence[type[Message]]) -> Mapping[type[Message], Topic]:
    """The topic of each message type, in order. Raises BusRejected for one that no topic carries."""
    try:
        return {message: topic_of(message) for message in messages}
    except KeyError as error:
        raise BusRejected("bus.no_topic", f"no topic carries {error.args[0].DESCRIPTOR.full_name}") from error


def partition_of(key: str, *, num_partitions: int) -> int:
    """Kafka's default placement of a keyed record."""
    return int(murmur2(key.encode()) & 0x7FFFFFFF) % num_partitions


@cache
def schema_digest(type_name: str) -> str:
    """First 16 hex digits of the SHA-256 of the .proto file that defines the message type."""
    file = descriptor_pool.Default().FindMessageTypeByName(type_name).file
    return hashlib.sha256(file.serialized_pb).hexdigest()[:16]


def _headers(message: type[Message], trace: str | None) -> tuple[tuple[str, bytes], ...]:
    name = message.DESCRIPTOR.full_name
    headers = ((TYPE_HEADER, name.encode()), (SCHEMA_HEADER, schema_digest(name).encode()))
    return headers if trace is None else (*headers, (TRACE_HEADER, trace.encode()))
