"""Digests of message histories that ignore what harnesses are known to change.

An assistant message whose tool calls carry ids this session minted is known by these ids alone, so its arguments may
come back with other spacing, key order or added defaults. Any other call is compared as parsed JSON. Text is compared
without blanks at the ends of an assistant's message; reasoning, which most harnesses drop, is not compared. The digest
is rolled message by message: that of every beginning of a request comes at no extra cost.
"""

from collections.abc import Container, Sequence

import orjson
from xxhash import xxh3_128

from rein_dialects.neutral import JsonObject, Message, ToolCall

Digest = bytes


class History:
    """A history being read."""

    def __init__(self, tools: Sequence[JsonObject], *, minted: Container[str]) -> None:
        """`minted`: ids of tool calls the gateway gave out in this session."""
        self._hash = xxh3_128(orjson.dumps(list(tools), option=orjson.OPT_SORT_KEYS))
        self._minted = minted

    def add(self, message: Message) -> None:
        self._hash.update(orjson.dumps(self._parts(message)))

    def digest(self) -> Digest:
        """Of everything read so far."""
        return self._hash.digest()

    def copy(self) -> "History":
        """As far as it was read; both go on alone."""
        twin = History.__new__(History)
        twin._hash, twin._minted = self._hash.copy(), self._minted
        return twin

    def with_answer(self, message: Message) -> Digest:
        """The digest if `message` came next; nothing is added."""
        after = self._hash.copy()
        after.update(orjson.dumps(self._parts(message)))
        return after.digest()

    def _parts(self, message: Message) -> list[object]:
        if message.role != "assistant":
            return [message.role, message.tool_call_id, message.content]
        if message.tool_calls and all(call.id in self._minted for call in message.tool_calls):
            return ["minted", *(call.id for call in message.tool_calls)]
        return ["assistant", message.content.strip(), *(_call(call) for call in message.tool_calls)]


def _call(call: ToolCall) -> list[object]:
    try:
        arguments = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        arguments = call.arguments
    return [call.id, call.name, orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()]
