"""Request bodies, read once: a harness sends its whole history with every call, nearly all of it as before.

A body is cut into its messages and tools without looking into them; one whose bytes were seen before in the same
conversation is not read again, and is the same object as then. So a long history costs little more than skipping it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
import orjson
from xxhash import xxh3_128_digest

from rein_dialects.neutral import JsonObject, Message, Notes, RequestRefused, object_of

T = TypeVar("T")
#: What one element of a list holds; fields nobody acts on go to the notes. Raises RequestRefused.
Read = Callable[[dict[str, Any], Notes], Sequence[T]]

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_EMPTY = b"[]"
#: A memory that has grown to this many elements begins anew.
_MAX_KEPT = 50_000


@dataclass(slots=True)
class Kept(Generic[T]):
    """Elements of one list read so far, by digests of their bytes, each with the paths nobody acts on."""

    by_digest: dict[bytes, tuple[Sequence[T], tuple[str, ...]]] = field(default_factory=dict)

    def read(self, raw: bytes | msgspec.Raw, *, place: str, read: Read[T], notes: Notes) -> list[T]:
        """Everything a list holds. Raises RequestRefused, msgspec.DecodeError."""
        if len(self.by_digest) > _MAX_KEPT:
            self.by_digest.clear()
        values: list[T] = []
        for number, element in enumerate(_LIST.decode(raw)):
            digest = xxh3_128_digest(element)
            found = self.by_digest.get(digest)
            if found is None:
                found = self.by_digest[digest] = _read(element, place=f"{place}[{number}]", read=read)
            values.extend(found[0])
            if found[1]:
                notes.add(*found[1])
        return values


@dataclass(slots=True)
class Memory:
    """What was read in earlier requests of one conversation."""

    messages: Kept[Message] = field(default_factory=Kept)
    tools: Kept[JsonObject] = field(default_factory=Kept)


@dataclass(frozen=True, slots=True)
class Grammar:
    """How one dialect's bodies are read."""

    known: frozenset[str]
    """Fields somebody acts on."""
    message: Read[Message]
    tool: Read[JsonObject]


@dataclass(frozen=True, slots=True)
class Body:
    """A body taken apart."""

    fields: Mapping[str, Any]
    """All but messages and tools, parsed."""
    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...]
    notes: Notes


def read_body(raw: bytes, *, memory: Memory, grammar: Grammar) -> Body:
    """Raises RequestRefused."""
    notes = Notes()
    try:
        fields = _FIELDS.decode(raw)
        given, tools = fields.pop("messages", _EMPTY), fields.pop("tools", _EMPTY)
        tools = _EMPTY if bytes(tools) == b"null" else tools
        values = {name: orjson.loads(bytes(value)) for name, value in fields.items()}
        notes.unknown(values, known=grammar.known, place="")
        messages = memory.messages.read(given, place="messages", read=grammar.message, notes=notes)
        read_tools = memory.tools.read(tools, place="tools", read=grammar.tool, notes=notes)
    except (msgspec.DecodeError, orjson.JSONDecodeError, UnicodeDecodeError) as error:
        raise RequestRefused(f"the body is no JSON object with lists of messages and tools: {error}") from error
    if not messages:
        raise RequestRefused("messages must hold at least one message")
    return Body(values, tuple(messages), tuple(read_tools), notes)


def _read(element: msgspec.Raw, *, place: str, read: Read[T]) -> tuple[Sequence[T], tuple[str, ...]]:
    notes = Notes()
    try:
        return tuple(read(object_of(orjson.loads(bytes(element)), place="it"), notes)), notes.paths()
    except (RequestRefused, orjson.JSONDecodeError) as error:
        raise RequestRefused(f"{place}: {error}") from error
