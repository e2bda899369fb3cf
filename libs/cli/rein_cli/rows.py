"""Events as plain rows: what `rein tap` prints and writes. Column names are the proto field names.

Numbers stay numbers (proto's own JSON turns 64-bit ones into strings), enums are their names, times are UTC, bytes
are base64, an absent optional field or message is None.
"""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from rein_bus.ports import Record
from rein_contracts.topics import topic_of

Row = dict[str, Any]


def row_of(record: Record[Message]) -> Row:
    """Place, key, time and all fields of one record."""
    return {
        "topic": topic_of(record.place.message).noun_event,
        "partition": record.place.partition,
        "offset": record.place.offset,
        "key": record.key,
        "at_ms": record.at_ms,
        "event": fields_of(record.message),
    }


def fields_of(message: Message) -> Row:
    return {each.name: _value(message, each) for each in message.DESCRIPTOR.fields}


def write_parquet(rows: Iterable[Row], *, file: Path) -> int:
    """Write rows of one topic, the event's fields as columns beside place and key; the number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    flat = [{**{key: value for key, value in row.items() if key != "event"}, **_with_places(row)} for row in rows]
    parquet.write_table(pa.Table.from_pylist(flat), file)
    return len(flat)


def _with_places(row: Row) -> Row:
    """The event's fields, those that share a name with a place column prefixed."""
    return {(f"event_{name}" if name in row else name): value for name, value in row["event"].items()}


def _value(message: Message, field: Any) -> object:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [{"key": key, "value": each} for key, each in sorted(value.items())]
    if field.is_repeated:
        return [_single(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: Any) -> object:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if isinstance(value, Timestamp):
        return value.ToJsonString()
    if isinstance(value, Message):
        return fields_of(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
