"""Messages as the gateway thinks of them, whatever dialect brought them; OpenAI's chat shape, frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is JSON text as it was written, never parsed and re-serialised."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `role` is system, user, assistant or tool."""

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.tool_call_id:
            message["tool_call_id"] = self.tool_call_id
        return message


@dataclass(frozen=True, slots=True)
class Request:
    """One model call as a harness asked for it."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...]
    """In OpenAI's function form."""
    is_streamed: bool
    max_tokens: int | None
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Sampling settings the harness sent; the run's own win."""
    unknown: tuple[str, ...] = ()
    """Top-level fields this dialect does not act on."""


@dataclass(frozen=True, slots=True)
class Usage:
    """True token counts."""

    prompt_tokens: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy said, read from its tokens."""

    id: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    is_cut: bool
    """Ended by a length limit, not by the policy."""
    usage: Usage

    def message(self) -> Message:
        return Message("assistant", self.content, self.tool_calls)


class RequestRefused(ValueError):
    """The body is not what the dialect allows; the text names the field and the remedy."""


def text_of(content: object, *, place: str, joint: str = "") -> str:
    """Text of a string or of a list of text blocks. Raises RequestRefused naming what is not text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestRefused(f"{place} must be text or a list of blocks")
    texts: list[str] = []
    for number, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in ("text", "input_text", "output_text"):
            raise RequestRefused(f"{place}[{number}] has type {kind!r}; this model reads text only")
        texts.append(str(block["text"]))
    return joint.join(texts)


def object_of(value: object, *, place: str) -> dict[str, Any]:
    """Raises RequestRefused when `value` is no JSON object."""
    if not isinstance(value, dict):
        raise RequestRefused(f"{place} must be an object")
    return value
