"""What every dialect can do. A dialect is a module; the gateway is handed modules."""

from collections.abc import Iterator
from typing import Protocol

from rein_dialects.neutral import Answer, JsonObject, Request
from rein_dialects.reading import Memory


class Dialect(Protocol):
    """Reads requests and writes answers of one wire format."""

    NAME: str
    """As it stands in `TurnCaptured.dialect`."""
    ANSWER_ID_PREFIX: str
    TOOL_ID_PREFIX: str
    PING: bytes
    """Keeps a stream alive; clients ignore it."""

    def parse_request(self, raw: bytes, *, memory: Memory) -> Request:
        """`memory` is of the conversation this request belongs to. Raises RequestRefused naming the field."""

    def whole(self, answer: Answer, *, model: str) -> JsonObject:
        """The answer as one body; `model` is the name the harness used."""

    def stream_start(self, *, answer_id: str, model: str, prompt_tokens: int) -> bytes:
        """What can be sent before anything was sampled."""

    def stream_rest(self, answer: Answer, *, request: Request) -> Iterator[bytes]:
        """Everything after `stream_start`, to the dialect's own terminal event."""

    def error(self, status: int, *, message: str) -> JsonObject:
        """The dialect's error body."""

    def stream_error(self, status: int, *, message: str) -> bytes:
        """An error once a stream has begun."""

    def overlong(self, *, prompt_tokens: int, limit: int) -> str:
        """The words on which harnesses compact their history."""
