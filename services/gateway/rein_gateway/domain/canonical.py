"""Digests of message histories that ignore what harnesses are known to change.

An assistant message with tool calls is known by the ids the gateway minted in them, so arguments may come back with
other spacing, key order or added defaults; its text is compared without blanks at its ends. The digest of a history is
rolled message by message, so the digest of every beginning of a request comes at no extra cost.
"""

from collections.abc import Sequence

import orjson
from xxhash import xxh3_128_digest

from rein_dialects.neutral import JsonObject, Message

Digest = bytes


def start(tools: Sequence[JsonObject]) -> Digest:
    """Digest of an empty history under these tools."""
    return xxh3_128_digest(orjson.dumps(list(tools), option=orjson.OPT_SORT_KEYS))


def extend(digest: Digest, *, message: Message) -> Digest:
    """Digest of the history with `message` after it."""
    if message.role == "assistant" and message.tool_calls:
        parts = ["calls", *(call.id for call in message.tool_calls)]
    elif message.role == "assistant":
        parts = ["assistant", message.content.strip()]
    else:
        parts = [message.role, message.tool_call_id, message.content]
    return xxh3_128_digest(digest + orjson.dumps(parts))


def history(messages: Sequence[Message], *, tools: Sequence[JsonObject]) -> list[Digest]:
    """Digest after each message; one longer than `messages`, the first is that of the empty history."""
    digests = [start(tools)]
    for message in messages:
        digests.append(extend(digests[-1], message=message))
    return digests
