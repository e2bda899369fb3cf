"""Anthropic Messages, as Claude Code 2.1 speaks it: request, whole answer, event stream, errors."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from rein_dialects.neutral import (
    Answer,
    JsonObject,
    Message,
    Notes,
    Request,
    RequestRefused,
    ToolCall,
    block_text,
    count_of,
    object_of,
    text_of,
)
from rein_dialects.reading import Grammar, Memory, read_body
from rein_dialects.sse import event

NAME = "anthropic.messages"
ANSWER_ID_PREFIX = "msg_"
TOOL_ID_PREFIX = "toolu_"
PING = event({"type": "ping"}, name="ping")

_ASKED = frozenset({"temperature", "top_p", "top_k", "stop_sequences", "tool_choice"})
#: Acted on, or without meaning for a model of one's own.
_KNOWN = _ASKED | {
    *("model", "messages", "system", "tools", "stream", "max_tokens"),
    *("metadata", "thinking", "output_config", "context_management", "betas", "service_tier", "diagnostics"),
}
_KNOWN_IN_MESSAGE = frozenset({"role", "content"})
_KNOWN_IN_TOOL = frozenset({"name", "description", "input_schema", "type", "cache_control", "strict"})
#: Differs from call to call: with it in the prompt no call would ever continue another.
_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?")
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def parse_request(raw: bytes, *, memory: Memory) -> Request:
    body = read_body(raw, memory=memory, grammar=_GRAMMAR)
    fields = body.fields
    system, set_aside = _system(fields.get("system"))
    return Request(
        model=str(fields.get("model", "")),
        messages=(Message("system", system), *body.messages) if system else body.messages,
        tools=body.tools,
        is_streamed=bool(fields.get("stream")),
        max_tokens=count_of(fields.get("max_tokens"), place="max_tokens"),
        asked={name: fields[name] for name in sorted(_ASKED & fields.keys())},
        unknown=body.notes.paths(),
        set_aside=set_aside,
    )


def _system(value: object) -> tuple[str, tuple[str, ...]]:
    """Text of the system prompt, and the billing headers that were taken out of it."""
    texts = [block_text(block) for block in value] if isinstance(value, list) else [text_of(value)]
    billed = tuple(found[0].strip() for text in texts if (found := _BILLING.match(text)))
    kept = [_BILLING.sub("", text) for text in texts] if billed else texts
    return "\n\n".join(text for text in kept if text), billed


def _messages(message: dict[str, Any], notes: Notes) -> Sequence[Message]:
    notes.unknown(message, known=_KNOWN_IN_MESSAGE, place="messages.")
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        return (_assistant(content),)
    if role not in ("user", "system"):
        raise RequestRefused(f"role is {role!r}; it must be user, assistant or system")
    return _said(role, content) if isinstance(content, list) else (Message(role, text_of(content)),)


def _said(role: str, content: list[Any]) -> list[Message]:
    """Tool results are messages of their own; text between them stays where it was."""
    messages: list[Message] = []
    texts: list[str] = []
    for block in content:
        if not isinstance(block, dict) or block.get("type") != "tool_result":
            texts.append(block_text(block))
            continue
        if texts:
            messages.append(Message(role, "".join(texts)))
            texts = []
        messages.append(Message("tool", text_of(block.get("content")), (), str(block.get("tool_use_id"))))
    if texts or not content:
        messages.append(Message(role, "".join(texts)))
    return messages


def _assistant(content: object) -> Message:
    if not isinstance(content, list):
        return Message("assistant", text_of(content))
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block in content:
        kind = object_of(block, place="a block of content").get("type")
        if kind == "tool_use":
            arguments = orjson.dumps(block.get("input", {})).decode()
            calls.append(ToolCall(str(block.get("id")), str(block.get("name")), arguments))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking", "")))
        elif kind != "redacted_thinking":
            texts.append(block_text(block))
    return Message("assistant", "".join(texts), tuple(calls), "", "".join(thoughts))


def _tools(tool: dict[str, Any], notes: Notes) -> Sequence[JsonObject]:
    if "input_schema" not in tool:  # runs on the provider's servers; there is nothing here to run it
        notes.add(f"tools[{tool.get('type')}]")
        return ()
    notes.unknown(tool, known=_KNOWN_IN_TOOL, place="tools.")
    function = {
        "name": tool.get("name", ""),
        "description": tool.get("description", ""),
        "parameters": tool["input_schema"],
    }
    return ({"type": "function", "function": function},)


_GRAMMAR = Grammar(known=_KNOWN, message=_messages, tool=_tools)


def whole(answer: Answer, *, model: str) -> JsonObject:
    return {
        **_head(answer.id, model),
        "content": [block for block, _ in _blocks(answer)],
        "stop_reason": _stop_reason(answer),
        "usage": _usage(answer),
    }


def stream_start(*, answer_id: str, model: str, prompt_tokens: int) -> bytes:
    usage = {"input_tokens": prompt_tokens, "output_tokens": 0}
    message = {**_head(answer_id, model), "content": [], "stop_reason": None, "usage": usage}
    return event({"type": "message_start", "message": message}, name="message_start")


def stream_rest(answer: Answer, *, request: Request) -> Iterator[bytes]:
    for index, (block, deltas) in enumerate(_blocks(answer)):
        start = {"type": "content_block_start", "index": index, "content_block": _emptied(block)}
        yield event(start, name="content_block_start")
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta}, name="content_block_delta")
        yield event({"type": "content_block_stop", "index": index}, name="content_block_stop")
    delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield event({"type": "message_delta", "delta": delta, "usage": _usage(answer)}, name="message_delta")
    yield event({"type": "message_stop"}, name="message_stop")


def error(status: int, *, message: str) -> JsonObject:
    return {"type": "error", "error": {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}}


def stream_error(status: int, *, message: str) -> bytes:
    return event(error(status, message=message), name="error")


def overlong(*, prompt_tokens: int, limit: int) -> str:
    return f"prompt is too long: {prompt_tokens} tokens > {limit} maximum"


def _head(answer_id: str, model: str) -> dict[str, Any]:
    return {"id": answer_id, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def _usage(answer: Answer) -> JsonObject:
    return {"input_tokens": answer.usage.prompt_tokens, "output_tokens": answer.usage.sampled_tokens}


def _blocks(answer: Answer) -> Iterator[tuple[dict[str, Any], tuple[JsonObject, ...]]]:
    """Each content block, and the deltas that fill it."""
    if answer.reasoning:
        thinking = {"type": "thinking_delta", "thinking": answer.reasoning}
        signature = {"type": "signature_delta", "signature": ""}
        yield {"type": "thinking", "thinking": answer.reasoning, "signature": ""}, (thinking, signature)
    if answer.content or not answer.tool_calls:
        yield {"type": "text", "text": answer.content}, ({"type": "text_delta", "text": answer.content},)
    for call in answer.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": orjson.loads(call.arguments)}
        yield block, ({"type": "input_json_delta", "partial_json": call.arguments},)


def _emptied(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        return {**block, "input": {}}
    return {**block, block["type"]: ""}  # a text block's text, a thinking block's thinking


def _stop_reason(answer: Answer) -> str:
    return "max_tokens" if answer.is_cut else "tool_use" if answer.tool_calls else "end_turn"
