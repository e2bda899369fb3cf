"""OpenAI chat completions: request, whole answer, event stream, errors."""

import time
from collections.abc import Iterator
from typing import Any

from rein_dialects.neutral import Answer, JsonObject, Message, Request, RequestRefused, ToolCall, object_of, text_of
from rein_dialects.sse import event

NAME = "openai.chat"
TOOL_ID_PREFIX = "call_"
PING = b": waiting\n\n"

_ACTED_ON = {"model", "messages", "tools", "stream", "max_tokens", "max_completion_tokens"}
_SAMPLING = {
    "temperature",
    "top_p",
    "top_k",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "n",
    "tool_choice",
    "response_format",
}
_NO_EFFECT = {"user", "metadata", "store", "usage", "stream_options", "parallel_tool_calls", "reasoning_effort"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def parse_request(body: JsonObject) -> Request:
    """Raises RequestRefused naming the field."""
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise RequestRefused("messages must be a list with at least one message")
    if body.get("n") not in (None, 1):
        raise RequestRefused(f"n is {body['n']!r}; one answer is sampled per call")
    max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    return Request(
        model=str(body.get("model", "")),
        messages=tuple(
            _message(object_of(one, place=f"messages[{i}]"), f"messages[{i}]") for i, one in enumerate(given)
        ),
        tools=tuple(object_of(tool, place="tools") for tool in body.get("tools") or ()),
        is_streamed=bool(body.get("stream")),
        max_tokens=int(max_tokens) if isinstance(max_tokens, int) else None,
        asked={name: body[name] for name in sorted(_SAMPLING & body.keys())},
        unknown=tuple(sorted(body.keys() - _ACTED_ON - _SAMPLING - _NO_EFFECT)),
    )


def _message(message: dict[str, Any], place: str) -> Message:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise RequestRefused(f"{place}.role is {message.get('role')!r}; it must be one of {', '.join(_ROLES)}")
    calls: list[ToolCall] = []
    for call in message.get("tool_calls") or ():
        function = object_of(object_of(call, place=place).get("function"), place=f"{place}.tool_calls")
        calls.append(ToolCall(str(call.get("id")), str(function.get("name")), str(function.get("arguments"))))
    content = text_of(message.get("content"), place=f"{place}.content")
    return Message(role, content, tuple(calls), str(message.get("tool_call_id") or ""))


def whole(answer: Answer, *, model: str) -> JsonObject:
    """The answer as one body."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
    if answer.tool_calls:
        message["tool_calls"] = [_call(call) for call in answer.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer), "logprobs": None}
    return {**_head(answer.id, model, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream_start(*, answer_id: str, model: str, prompt_tokens: int) -> bytes:
    """What can be sent before anything was sampled."""
    return event(_chunk(answer_id, model, {"role": "assistant", "content": ""}, None))


def stream_rest(answer: Answer, *, model: str) -> Iterator[bytes]:
    """Content, calls, the end and the usage, after `stream_start`."""
    if answer.content:
        yield event(_chunk(answer.id, model, {"content": answer.content}, None))
    for index, call in enumerate(answer.tool_calls):
        yield event(_chunk(answer.id, model, {"tool_calls": [{"index": index, **_call(call)}]}, None))
    yield event(_chunk(answer.id, model, {}, _finish_reason(answer)))
    yield event({**_head(answer.id, model, "chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def error(status: int, *, message: str) -> JsonObject:
    """The dialect's error body."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "context_length_exceeded" if message.startswith("This model's maximum context length") else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def stream_error(status: int, *, message: str) -> bytes:
    return event(error(status, message=message))


def overlong(*, prompt_tokens: int, limit: int) -> str:
    """The words on which harnesses compact their history."""
    return f"This model's maximum context length is {limit} tokens. However, your messages hold {prompt_tokens} tokens."


def _head(answer_id: str, model: str, kind: str) -> dict[str, Any]:
    return {"id": answer_id, "object": kind, "created": int(time.time()), "model": model}


def _chunk(answer_id: str, model: str, delta: JsonObject, finish_reason: str | None) -> JsonObject:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
    return {**_head(answer_id, model, "chat.completion.chunk"), "choices": [choice]}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(answer: Answer) -> JsonObject:
    usage = answer.usage
    total = usage.prompt_tokens + usage.sampled_tokens
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.sampled_tokens, "total_tokens": total}


def _finish_reason(answer: Answer) -> str:
    return "length" if answer.is_cut else "tool_calls" if answer.tool_calls else "stop"
