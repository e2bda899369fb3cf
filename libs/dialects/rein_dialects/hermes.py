"""Hermes tool calls: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` inside an assistant's text.

What cannot be read stays in the content, so that nothing the policy said is lost; `problems` says so.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from rein_dialects.neutral import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Parsed:
    """An assistant's text taken apart."""

    content: str
    tool_calls: tuple[ToolCall, ...]
    problems: tuple[str, ...]


def parse(text: str, *, new_id: Callable[[], str]) -> Parsed:
    """`new_id` mints the id of each call found."""
    contents: list[str] = []
    calls: list[ToolCall] = []
    problems: list[str] = []
    rest = text
    while OPEN in rest:
        before, _, after = rest.partition(OPEN)
        body, closing, tail = after.partition(CLOSE)
        call = _call(body, new_id) if closing else None
        if call is None:
            problems.append("a tool call is not closed" if not closing else f"a tool call is no JSON: {body[:80]!r}")
            before += OPEN + body + closing
        else:
            calls.append(call)
        contents.append(before)
        rest = tail
    contents.append(rest)
    return Parsed("".join(contents).strip("\n"), tuple(calls), tuple(problems))


def _call(body: str, new_id: Callable[[], str]) -> ToolCall | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(new_id(), value["name"], json.dumps(arguments, ensure_ascii=False))
