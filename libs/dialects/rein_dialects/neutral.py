"""Messages as the gateway thinks of them, whatever dialect brought them; OpenAI's chat shape, immutable.

Messages and tool calls are named tuples: a harness sends its whole history with every call, so they are made by the
hundred, and a frozen dataclass takes four times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

JsonObject = Mapping[str, Any]

_TEXT_BLOCKS = ("text", "input_text", "output_text")


class ToolCall(NamedTuple):
    """`arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """One message; `role` is system, user, assistant or tool."""

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it: a tool call's arguments are an object where they can be."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
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
    tools: tuple[JsonObject, ...] = ()
    """In OpenAI's function form."""
    is_streamed: bool = False
    wants_usage: bool = True
    """A streamed answer says its token counts."""
    max_tokens: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    """How the harness wants to be sampled for; the run's own settings win."""
    unknown: tuple[str, ...] = ()
    """Fields this dialect does not act on, by path."""
    set_aside: tuple[str, ...] = ()
    """Text that was left out of the prompt because it changes from call to call, as it was sent."""


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
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    is_cut: bool
    """Ended by a length limit, not by the policy."""
    usage: Usage

    def message(self) -> Message:
        return Message("assistant", self.content, self.tool_calls, reasoning=self.reasoning)


class RequestRefused(ValueError):
    """The body is not what the dialect or the model's template allows; the text names the field."""


class Notes:
    """Collects the paths of fields nobody acts on while a request is parsed: nothing is dropped silently."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def unknown(self, fields: Mapping[str, Any], *, known: frozenset[str], place: str) -> None:
        if not fields.keys() <= known:
            self._paths.update(f"{place}{name}" for name in fields.keys() - known)

    def add(self, *paths: str) -> None:
        self._paths.update(paths)

    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._paths))


def text_of(content: object) -> str:
    """Text of a string or of a list of text blocks. Raises RequestRefused saying what is not text."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise RequestRefused("content must be text or a list of blocks")
    return "".join([block_text(block) for block in content])


def block_text(block: object) -> str:
    """Text of one text block. Raises RequestRefused saying what it is instead."""
    kind = block.get("type") if isinstance(block, dict) else type(block).__name__
    if not isinstance(block, dict) or kind not in _TEXT_BLOCKS or not isinstance(block.get("text"), str):
        raise RequestRefused(f"a block of content has type {kind!r}; this model reads text only")
    return str(block["text"])


def object_of(value: object, *, place: str) -> dict[str, Any]:
    """Raises RequestRefused when `value` is no JSON object."""
    if not isinstance(value, dict):
        raise RequestRefused(f"{place} must be an object")
    return value


def count_of(value: object, *, place: str) -> int | None:
    """A positive whole number or nothing. Raises RequestRefused otherwise."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestRefused(f"{place} is {value!r}; it must be a positive whole number")
    return value


def _arguments(call: ToolCall) -> object:
    try:
        arguments = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return call.arguments
    return arguments if isinstance(arguments, dict) else call.arguments
