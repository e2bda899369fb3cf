"""Requests as harnesses really sent them, answers whole and streamed, errors; both dialects."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rein_dialects import anthropic, openai_chat
from rein_dialects.dialect import Dialect
from rein_dialects.neutral import Answer, Message, Request, RequestRefused, ToolCall, Usage
from rein_dialects.reading import Memory

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
CALLS = (ToolCall("t1", "Bash", '{"command": "ls \\"é\\""}'), ToolCall("t2", "Read", "{}"))
BOTH: tuple[Dialect, ...] = (anthropic, openai_chat)


def golden(harness: str, number: int) -> dict[str, Any]:
    body = json.loads((GOLDEN / harness / f"request-{number}.json").read_text())["body"]
    assert isinstance(body, dict)
    return body


def parsed(dialect: Dialect, body: Any, memory: Memory | None = None) -> Request:
    return dialect.parse_request(json.dumps(body).encode(), memory=memory or Memory())


def answer(content: str = "Looking.", calls: tuple[ToolCall, ...] = CALLS, **changes: Any) -> Answer:
    values: dict[str, Any] = {"reasoning": "", "is_cut": False, "usage": Usage(12, 5)}
    return Answer("a1", content, tool_calls=calls, **{**values, **changes})


def events(chunks: list[bytes]) -> list[dict[str, Any]]:
    lines = b"".join(chunks).decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]


def streamed(dialect: Dialect, given: Answer, **asked: Any) -> list[dict[str, Any]]:
    request = Request("m", (Message("user", "x"),), is_streamed=True, **asked)
    start = dialect.stream_start(answer_id=given.id, model="m", prompt_tokens=given.usage.prompt_tokens)
    return events([start, *dialect.stream_rest(given, request=request)])


def test_claude_codes_third_request_is_read_as_it_was_meant() -> None:
    request = parsed(anthropic, golden("claude-code-2.1.197", 3))
    assert [message.role for message in request.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert request.messages[0].content.endswith("Agent SDK.\n\nYou repair code with the Bash tool.")
    assert request.messages[1].content.startswith("<system-reminder>")
    assert request.messages[1].content.endswith(
        "</system-reminder>\n\nLine 2 of toolz/itertoolz.py has one wrong operator. Repair it."
    )
    assert request.messages[2].tool_calls[0].id == request.messages[3].tool_call_id == "toolu_0001"
    assert request.messages[3].content == "    if a <= b:"
    assert (request.is_streamed, request.max_tokens, request.unknown, request.asked) == (True, 32000, (), {})
    assert request.tools[0]["function"]["name"] == "Bash"


def test_mini_swe_agents_third_request_is_read_as_it_was_meant() -> None:
    request = parsed(openai_chat, golden("mini-swe-agent-2.4.6", 3))
    assert [message.role for message in request.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert request.messages[2].tool_calls == (
        ToolCall("call_0001", "bash", '{"command": "sed -n 2p toolz/itertoolz.py"}'),
    )
    assert (request.is_streamed, request.max_tokens, request.unknown, request.asked) == (False, None, (), {})


@pytest.mark.parametrize(
    ("harness", "dialect"), [("claude-code-2.1.197", anthropic), ("mini-swe-agent-2.4.6", openai_chat)]
)
def test_each_request_begins_with_all_of_the_one_before(harness: str, dialect: Dialect) -> None:
    requests = [parsed(dialect, golden(harness, number)) for number in (1, 2, 3)]
    for earlier, later in itertools.pairwise(requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert later.tools == earlier.tools


def test_system_text_inside_the_messages_is_a_system_message() -> None:
    body = {
        "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "n"}]}]
    }
    assert parsed(anthropic, body).messages == (Message("user", "a"), Message("system", "n"))


def test_text_between_tool_results_stays_where_it_was() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "o"}]}
    text = {"type": "text", "text": "x"}
    roles = [
        m.role
        for m in parsed(anthropic, {"messages": [{"role": "user", "content": [text, result, text, text]}]}).messages
    ]
    assert roles == ["user", "tool", "user"]


def test_what_changes_from_call_to_call_is_set_aside_and_told() -> None:
    """Case C1."""
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.abc; cch=12345"}
    body = {"system": [billing, {"type": "text", "text": "Be brief."}], "messages": [{"role": "user", "content": "x"}]}
    request = parsed(anthropic, body)
    assert request.messages[0] == Message("system", "Be brief.")
    assert request.set_aside == (billing["text"],)
    inline = {**body, "system": billing["text"] + "\nBe brief."}
    assert parsed(anthropic, inline).messages == request.messages


def test_cache_marks_make_no_difference() -> None:
    block = {"type": "text", "text": "x"}
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    assert parsed(anthropic, {"messages": [{"role": "user", "content": [marked]}]}) == parsed(
        anthropic, {"messages": [{"role": "user", "content": [block]}]}
    )


def test_thinking_comes_back_as_reasoning() -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "yes"}]
    request = parsed(
        anthropic, {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]}
    )
    assert request.messages[1] == Message("assistant", "yes", reasoning="hm")


@pytest.mark.parametrize("dialect", BOTH, ids=lambda d: str(d.NAME))
def test_fields_nobody_acts_on_are_named(dialect: Dialect) -> None:
    """Case A7."""
    body = {"messages": [{"role": "user", "content": "x", "colour": 1}], "foo": {"bar": 1}, "temperature": 0.5}
    request = parsed(dialect, body)
    assert request.unknown == ("foo", "messages.colour")
    assert request.asked == {"temperature": 0.5}


def test_a_tool_that_runs_at_the_provider_is_named() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search_20250305", "name": "w"}]}
    request = parsed(anthropic, body)
    assert (request.tools, request.unknown) == ((), ("tools[web_search_20250305]",))


@pytest.mark.parametrize("dialect", BOTH, ids=lambda d: str(d.NAME))
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [1]}, r"messages\[0\]"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "robot"),
        ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\]: content"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": {}}, "tools"),
        ({"tools": [3]}, r"tools\[0\]"),
    ],
)
def test_bad_requests_are_refused_by_name(dialect: Dialect, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestRefused, match=named):
        parsed(dialect, {"messages": [{"role": "user", "content": "x"}], **changes})


def test_more_than_one_answer_is_refused() -> None:
    with pytest.raises(RequestRefused, match="n is 2"):
        parsed(openai_chat, {"messages": [{"role": "user", "content": "x"}], "n": 2})


class Grammar:
    """The life cycle of an Anthropic stream (case C4): one start, blocks one after the other, one end."""

    def __init__(self) -> None:
        self.state = "begin"
        self.index = 0

    def see(self, event: dict[str, Any]) -> None:
        allowed = {
            "begin": {"message_start": "between"},
            "between": {"content_block_start": "inside", "message_delta": "ending", "ping": "between"},
            "inside": {"content_block_delta": "inside", "content_block_stop": "between"},
            "ending": {"message_stop": "end"},
        }[self.state]
        assert event["type"] in allowed, (self.state, event)
        if "index" in event:
            assert event["index"] == self.index
        self.index += event["type"] == "content_block_stop"
        self.state = allowed[event["type"]]


@pytest.mark.parametrize(
    "given",
    [
        answer(),
        answer(calls=()),
        answer("", ()),
        answer("", CALLS[:1]),
        answer(reasoning="hm"),
        answer("", (), reasoning="cut", is_cut=True),
    ],
)
def test_the_anthropic_stream_obeys_its_grammar_and_says_what_the_whole_answer_says(given: Answer) -> None:
    grammar = Grammar()
    seen = streamed(anthropic, given)
    for event in seen:
        grammar.see(event)
    assert grammar.state == "end"
    assert _gathered(seen) == anthropic.whole(given, model="m")


def _gathered(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream."""
    message = dict(seen[0]["message"])
    blocks: list[dict[str, Any]] = []
    json_text = ""
    for event in seen[1:]:
        match event["type"]:
            case "content_block_start":
                blocks.append(dict(event["content_block"]))
                json_text = ""
            case "content_block_delta":
                delta = event["delta"]
                json_text += delta.get("partial_json", "")
                for name in ("text", "thinking", "signature"):
                    blocks[-1][name] = blocks[-1].get(name, "") + delta[name] if name in delta else blocks[-1].get(name)
            case "content_block_stop":
                blocks[-1] = {name: value for name, value in blocks[-1].items() if value is not None}
                if blocks[-1]["type"] == "tool_use":
                    blocks[-1]["input"] = json.loads(json_text)
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
    return {**message, "content": blocks}


def test_the_chat_stream_says_what_the_whole_answer_says() -> None:
    given = answer(reasoning="hm")
    seen = streamed(openai_chat, given)
    deltas = [event["choices"][0]["delta"] for event in seen if event["choices"]]
    whole: dict[str, Any] = dict(openai_chat.whole(given, model="m"))
    message = whole["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [{name: value for name, value in call.items() if name != "index"} for call in calls] == message["tool_calls"]
    assert [call["index"] for call in calls] == [0, 1]
    assert seen[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "tool_calls"
    assert seen[-1]["usage"] == whole["usage"]
    assert {event["id"] for event in seen} == {"a1"}


def test_a_chat_stream_says_its_usage_only_when_asked() -> None:
    assert all(event["choices"] for event in streamed(openai_chat, answer(), wants_usage=False))


@pytest.mark.parametrize(
    ("given", "stop", "finish"),
    [
        (answer(), "tool_use", "tool_calls"),
        (answer(calls=()), "end_turn", "stop"),
        (answer(is_cut=True), "max_tokens", "length"),
    ],
)
def test_why_an_answer_ended(given: Answer, stop: str, finish: str) -> None:
    assert anthropic.whole(given, model="m")["stop_reason"] == stop
    assert openai_chat.whole(given, model="m")["choices"][0]["finish_reason"] == finish


def test_errors_have_the_dialects_own_form() -> None:
    assert anthropic.error(503, message="busy")["error"]["type"] == "overloaded_error"
    assert anthropic.overlong(prompt_tokens=9, limit=8) == "prompt is too long: 9 tokens > 8 maximum"
    overlong = openai_chat.overlong(prompt_tokens=9, limit=8)
    assert openai_chat.error(400, message=overlong)["error"]["code"] == "context_length_exceeded"
    assert openai_chat.error(503, message="busy")["error"]["type"] == "server_error"
