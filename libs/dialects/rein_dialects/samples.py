"""A sample's text taken apart: reasoning (`<think>`), content, and Hermes tool calls (`<tool_call>{json}</tool_call>`).

Invariants: the pieces do not depend on where the text was cut into chunks; whatever cannot be read as a tool call is
given out as text, so nothing the policy said is lost, and a problem names it. A call made while still thinking is a
call all the same.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import orjson

from rein_dialects.neutral import ToolCall

THINK, THOUGHT = "<think>", "</think>"
OPEN, CLOSE = "<tool_call>", "</tool_call>"

#: Quotes that open or end a JSON string.
_QUOTES = re.compile(r'\\.|"', re.DOTALL)


class Problem(Enum):
    """What is odd about a sample; the value is the finding's code."""

    UNCLOSED = "sample.tool_call_unclosed"
    UNREADABLE = "sample.tool_call_unreadable"
    INSIDE_REASONING = "sample.tool_call_inside_reasoning"


@dataclass(frozen=True, slots=True)
class Said:
    """A stretch of text."""

    text: str
    is_reasoning: bool


Piece = Said | ToolCall | Problem


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole sample."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    problems: tuple[Problem, ...]


class SampleParser:
    """Feed it text as it comes; `finish` once. `new_id` mints the id of each call found."""

    def __init__(self, *, new_id: Callable[[], str], is_thinking: bool = False) -> None:
        """`is_thinking`: the prompt itself ends with the mark that opens reasoning."""
        self._new_id = new_id
        self._is_thinking = is_thinking
        self._has_begun = is_thinking
        self._in_call = False
        self._buffer = ""
        self._newlines = ""
        """Held back: newlines at either end of reasoning and content are the template's, not the policy's."""
        self._has_spoken = False

    def feed(self, text: str) -> list[Piece]:
        self._buffer += text
        return list(self._read(is_last=False))

    def finish(self) -> list[Piece]:
        return list(self._read(is_last=True))

    def _read(self, *, is_last: bool) -> Iterator[Piece]:
        if not self._begin(is_last):
            return
        while True:
            if self._in_call:
                if (end := self._end_of_call()) < 0:
                    break
                yield from self._call(self._buffer[len(OPEN) : end], self._cut(end + len(CLOSE)))
                continue
            mark, at = self._next_mark()
            if at < 0:
                break
            yield from self._say(self._cut(at))
            if mark == OPEN:
                self._in_call = True
            else:
                self._cut(len(mark))
                self._is_thinking = self._has_spoken = False
        yield from self._tail(is_last)

    def _begin(self, is_last: bool) -> bool:
        """Whether the beginning is known: reasoning opens a sample or there is none."""
        if not self._has_begun:
            start = self._buffer.lstrip()
            if not is_last and len(start) < len(THINK) and THINK.startswith(start):
                return False
            self._has_begun = True
            if start.startswith(THINK):
                self._is_thinking = True
                self._buffer = start[len(THINK) :]
        return True

    def _next_mark(self) -> tuple[str, int]:
        found = [(at, mark) for mark in self._marks() if (at := self._buffer.find(mark)) >= 0]
        at, mark = min(found, default=(-1, ""))
        return mark, at

    def _marks(self) -> tuple[str, ...]:
        return (OPEN, THOUGHT) if self._is_thinking else (OPEN,)

    def _end_of_call(self) -> int:
        """Where the mark that closes the call begins; not inside a JSON string, where it is the policy's own text."""
        at = self._buffer.find(CLOSE)
        while at >= 0:
            quotes = sum(found[0] == '"' for found in _QUOTES.finditer(self._buffer, len(OPEN), at))
            if quotes % 2 == 0:
                return at
            at = self._buffer.find(CLOSE, at + len(CLOSE))
        return -1

    def _call(self, body: str, whole: str) -> Iterator[Piece]:
        self._in_call = False
        call = _call_in(body, self._new_id)
        if call is not None:
            if self._is_thinking:
                yield Problem.INSIDE_REASONING
            yield call
            return
        if not self._is_thinking:  # reasoning may well quote the marks
            yield Problem.UNREADABLE
        yield from self._say(whole)

    def _tail(self, is_last: bool) -> Iterator[Piece]:
        """Give out what no mark can begin in any more."""
        if is_last:
            if self._in_call and not self._is_thinking:
                yield Problem.UNCLOSED
            yield from self._say(self._cut(len(self._buffer)))
        elif not self._in_call:
            held = max(_held(self._buffer, mark) for mark in self._marks())
            yield from self._say(self._cut(len(self._buffer) - held))

    def _say(self, text: str) -> Iterator[Said]:
        text = self._newlines + text if self._has_spoken else text.lstrip("\n")
        kept = text.rstrip("\n")
        if kept:
            self._has_spoken = True
            yield Said(kept, is_reasoning=self._is_thinking)
        self._newlines = text[len(kept) :]

    def _cut(self, length: int) -> str:
        cut, self._buffer = self._buffer[:length], self._buffer[length:]
        return cut


def parse(text: str, *, new_id: Callable[[], str], is_thinking: bool = False) -> Parsed:
    """A whole sample at once."""
    parser = SampleParser(new_id=new_id, is_thinking=is_thinking)
    return fold([*parser.feed(text), *parser.finish()])


def fold(pieces: list[Piece]) -> Parsed:
    """The pieces of a whole sample, put together."""
    said = [piece for piece in pieces if isinstance(piece, Said)]
    return Parsed(
        content="".join(each.text for each in said if not each.is_reasoning),
        reasoning="".join(each.text for each in said if each.is_reasoning),
        tool_calls=tuple(piece for piece in pieces if isinstance(piece, ToolCall)),
        problems=tuple(piece for piece in pieces if isinstance(piece, Problem)),
    )


def _held(text: str, mark: str) -> int:
    """Length of the longest end of `text` that may be the beginning of `mark`."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)


def _call_in(body: str, new_id: Callable[[], str]) -> ToolCall | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(new_id(), value["name"], json.dumps(arguments, ensure_ascii=False))
