"""OpenAI chat completions: request, whole answer, event stream, errors."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from rein_dialects.neutral import (
    Answer,
    JsonObject,
    Message,
    Notes,
    Request,
    RequestRefused,
    ToolCall,
    count_of,
    object_of,
    text_of,
)
from rein_dialects.reading import Grammar, Memory, read_body
from rein_dialects.sse import event

NAME = "openai.chat"
ANSWER_ID_PREFIX = "chatcmpl-"
TOOL_ID_PREFIX = "call_"
PING = b": waiting\n\n"

_ASKED = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("logit_bias", "seed", "stop", "tool_choice", "response_format", "logprobs", "top_logprobs"),
    }
)
#: Acted on, or without meaning for a model of one's own.
_KNOWN = _ASKED | {
    *("model", "messages", "tools", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"),
    *("user", "metadata", "store", "usage", "parallel_tool_calls", "reasoning_effort", "service_tier"),
    *("prompt_cache_key", "safety_identifier"),
}
_KNOWN_IN_MESSAGE = frozenset(
    {
        *("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"),
        *("refusal", "annotations", "function_call", "audio", "provider_specific_fields"),
    }
)
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_OVERLONG = "This model's maximum context length is"


def parse_request(raw: bytes, *, memory: Memory) -> Request:
    body = read_body(raw, memory=memory, grammar=_GRAMMAR)
    fields = body.fields
    if fields.get("n") not in (None, 1):
        raise RequestRefused(f"n is {fields['n']!r}; one answer is sampled per call")
    options = object_of(fields.get("stream_options") or {}, place="stream_options")
    return Request(
        model=str(fields.get("model", "")),
        messages=body.messages,
        tools=body.tools,
        is_streamed=bool(fields.get("stream")),
        wants_usage=bool(options.get("include_usage")),
        max_tokens=count_of(fields.get("max_completion_tokens", fields.get("max_tokens")), place="max_tokens"),
        asked={name: fields[name] for name in sorted(_ASKED & fields.keys())},
        unknown=body.notes.paths(),
    )


def _messages(message: dict[str, Any], notes: Notes) -> Sequence[Message]:
    notes.unknown(message, known=_KNOWN_IN_MESSAGE, place="messages.")
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise RequestRefused(f"role is {message.get('role')!r}; it must be one of {', '.join(_ROLES)}")
    content, given = text_of(message.get("content")), message.get("tool_calls")
    calls = tuple(_call_of(each) for each in given) if isinstance(given, list) else ()
    reasoning = str(message.get("reasoning_content") or "")
    return (Message(role, content, calls, str(message.get("tool_call_id") or ""), reasoning),)


def _call_of(given: object) -> ToolCall:
    call = object_of(given, place="a tool call")
    function = object_of(call.get("function"), place="a tool call's function")
    return ToolCall(str(call.get("id")), str(function.get("name")), str(function.get("arguments")))


def _tools(tool: dict[str, Any], notes: Notes) -> Sequence[JsonObject]:
    if "function" not in tool:
        notes.add(f"tools[{tool.get('type')}]")
        return ()
    object_of(tool["function"], place="function")
    return (tool,)


_GRAMMAR = Grammar(known=_KNOWN, message=_messages, tool=_tools)


def whole(answer: Answer, *, model: str) -> JsonObject:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [_call(call) for call in answer.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer), "logprobs": None}
    return {**_head(answer.id, model, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream_start(*, answer_id: str, model: str, prompt_tokens: int) -> bytes:
    return event(_chunk(answer_id, model, {"role": "assistant", "content": ""}))


def stream_rest(answer: Answer, *, request: Request) -> Iterator[bytes]:
    model = request.model
    if answer.reasoning:
        yield event(_chunk(answer.id, model, {"reasoning_content": answer.reasoning}))
    if answer.content:
        yield event(_chunk(answer.id, model, {"content": answer.content}))
    for index, call in enumerate(answer.tool_calls):
        yield event(_chunk(answer.id, model, {"tool_calls": [{"index": index, **_call(call)}]}))
    yield event(_chunk(answer.id, model, {}, _finish_reason(answer)))
    if request.wants_usage:
        yield event({**_head(answer.id, model, "chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def error(status: int, *, message: str) -> JsonObject:
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "context_length_exceeded" if message.startswith(_OVERLONG) else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def stream_error(status: int, *, message: str) -> bytes:
    return event(error(status, message=message))


def overlong(*, prompt_tokens: int, limit: int) -> str:
    return f"{_OVERLONG} {limit} tokens. However, your messages resulted in {prompt_tokens} tokens."


def _head(answer_id: str, model: str, kind: str) -> dict[str, Any]:
    return {"id": answer_id, "object": kind, "created": int(time.time()), "model": model}


def _chunk(answer_id: str, model: str, delta: JsonObject, finish_reason: str | None = None) -> JsonObject:
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
