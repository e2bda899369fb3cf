"""Anthropic Messages, as Claude Code 2.1 speaks it: request, whole answer, event stream, errors."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from rein_dialects.neutral import Answer, JsonObject, Message, Request, RequestRefused, ToolCall, object_of, text_of
from rein_dialects.sse import event

NAME = "anthropic.messages"
TOOL_ID_PREFIX = "toolu_"
PING = event({"type": "ping"}, name="ping")

_ACTED_ON = {"model", "messages", "system", "tools", "stream", "max_tokens"}
_SAMPLING = {"temperature", "top_p", "top_k", "stop_sequences", "tool_choice"}
#: Changes with every request or means nothing to a model of one's own.
_NO_EFFECT = {"metadata", "thinking", "output_config", "context_management", "betas", "service_tier", "diagnostics"}
#: The billing header differs in every conversation; it would keep prompts from ever sharing a prefix.
_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*$")
_STOP = {"tool": "tool_use", "cut": "max_tokens", "end": "end_turn"}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def parse_request(body: JsonObject) -> Request:
    """Raises RequestRefused naming the field."""
    messages: list[Message] = []
    system = _system(body.get("system"))
    if system:
        messages.append(Message("system", system))
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise RequestRefused("messages must be a list with at least one message")
    for number, message in enumerate(given):
        messages.extend(_messages(object_of(message, place=f"messages[{number}]"), f"messages[{number}]"))
    max_tokens = body.get("max_tokens")
    return Request(
        model=str(body.get("model", "")),
        messages=tuple(messages),
        tools=tuple(_tool(object_of(tool, place="tools")) for tool in body.get("tools") or ()),
        is_streamed=bool(body.get("stream")),
        max_tokens=int(max_tokens) if isinstance(max_tokens, int) else None,
        asked={name: body[name] for name in sorted(_SAMPLING & body.keys())},
        unknown=tuple(sorted(body.keys() - _ACTED_ON - _SAMPLING - _NO_EFFECT)),
    )


def _system(value: object) -> str:
    if isinstance(value, list):
        texts = [text_of([block], place="system") for block in value]
        return "\n\n".join(text for text in texts if not _BILLING.match(text))
    return text_of(value, place="system")


def _messages(message: dict[str, Any], place: str) -> Iterator[Message]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise RequestRefused(f"{place}.role is {role!r}; it must be user, assistant or system")
    if role == "assistant":
        yield _assistant(content, place)
        return
    texts: list[str] = []
    for number, block in enumerate(content if isinstance(content, list) else [{"type": "text", "text": content}]):
        where = f"{place}.content[{number}]"
        if object_of(block, place=where).get("type") == "tool_result":
            yield Message(
                "tool", text_of(block.get("content"), place=where), tool_call_id=str(block.get("tool_use_id"))
            )
        else:
            texts.append(text_of([block], place=where))
    if texts:
        yield Message(str(role), "".join(texts))


def _assistant(content: object, place: str) -> Message:
    if not isinstance(content, list):
        return Message("assistant", text_of(content, place=place))
    texts: list[str] = []
    calls: list[ToolCall] = []
    for number, block in enumerate(content):
        kind = object_of(block, place=place).get("type")
        if kind == "tool_use":
            arguments = orjson.dumps(block.get("input", {})).decode()
            calls.append(ToolCall(str(block.get("id")), str(block.get("name")), arguments))
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(text_of([block], place=f"{place}.content[{number}]"))
    return Message("assistant", "".join(texts), tuple(calls))


def _tool(tool: dict[str, Any]) -> JsonObject:
    function = {
        "name": tool.get("name", ""),
        "description": tool.get("description", ""),
        "parameters": tool.get("input_schema", {}),
    }
    return {"type": "function", "function": function}


def whole(answer: Answer, *, model: str) -> JsonObject:
    """The answer as one body."""
    return {
        **_head(answer, model),
        "content": [block for block, _ in _blocks(answer)],
        "stop_reason": _stop_reason(answer),
        "usage": {"input_tokens": answer.usage.prompt_tokens, "output_tokens": answer.usage.sampled_tokens},
    }


def stream_start(*, answer_id: str, model: str, prompt_tokens: int) -> bytes:
    """What can be sent before anything was sampled."""
    message: dict[str, Any] = {
        "id": answer_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": prompt_tokens, "output_tokens": 0},
    }
    return event({"type": "message_start", "message": message}, name="message_start")


def stream_rest(answer: Answer, *, model: str) -> Iterator[bytes]:
    """The blocks and the end, after `stream_start`."""
    for index, (block, delta) in enumerate(_blocks(answer)):
        empty = {**block, "input": {}} if block["type"] == "tool_use" else {**block, "text": ""}
        start = {"type": "content_block_start", "index": index, "content_block": empty}
        yield event(start, name="content_block_start")
        yield event({"type": "content_block_delta", "index": index, "delta": delta}, name="content_block_delta")
        yield event({"type": "content_block_stop", "index": index}, name="content_block_stop")
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": _stop_reason(answer), "stop_sequence": None},
        "usage": {"input_tokens": answer.usage.prompt_tokens, "output_tokens": answer.usage.sampled_tokens},
    }
    yield event(end, name="message_delta")
    yield event({"type": "message_stop"}, name="message_stop")


def error(status: int, *, message: str) -> JsonObject:
    """The dialect's error body."""
    return {"type": "error", "error": {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}}


def stream_error(status: int, *, message: str) -> bytes:
    return event(error(status, message=message), name="error")


def overlong(*, prompt_tokens: int, limit: int) -> str:
    """The words on which Claude Code compacts its history."""
    return f"prompt is too long: {prompt_tokens} tokens > {limit} maximum"


def _head(answer: Answer, model: str) -> dict[str, Any]:
    return {"id": answer.id, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def _blocks(answer: Answer) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each content block, and the delta that fills it."""
    if answer.content or not answer.tool_calls:
        yield {"type": "text", "text": answer.content}, {"type": "text_delta", "text": answer.content}
    for call in answer.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": orjson.loads(call.arguments)}
        yield block, {"type": "input_json_delta", "partial_json": call.arguments}


def _stop_reason(answer: Answer) -> str:
    return _STOP["cut" if answer.is_cut else "tool" if answer.tool_calls else "end"]
