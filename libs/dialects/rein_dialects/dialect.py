"""What every dialect module offers; the modules themselves are the implementations."""

from collections.abc import Iterator
from typing import Protocol

from rein_dialects import anthropic, openai_chat
from rein_dialects.neutral import Answer, JsonObject, Request


class Dialect(Protocol):
    """A wire format between harness and gateway."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """As recorded in events."""

    @property
    def TOOL_ID_PREFIX(self) -> str:  # noqa: N802
        """How ids of tool calls begin."""

    @property
    def PING(self) -> bytes:  # noqa: N802
        """A piece of stream that means nothing and keeps the connection alive."""

    def parse_request(self, body: JsonObject) -> Request: ...

    def whole(self, answer: Answer, *, model: str) -> JsonObject: ...

    def stream_start(self, *, answer_id: str, model: str, prompt_tokens: int) -> bytes: ...

    def stream_rest(self, answer: Answer, *, model: str) -> Iterator[bytes]: ...

    def error(self, status: int, *, message: str) -> JsonObject: ...

    def stream_error(self, status: int, *, message: str) -> bytes: ...

    def overlong(self, *, prompt_tokens: int, limit: int) -> str: ...


#: By the end of the request's path.
DIALECTS: dict[str, Dialect] = {"/v1/messages": anthropic, "/v1/chat/completions": openai_chat}
