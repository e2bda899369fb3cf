"""Answers over real HTTP: the asked form, the dialect's own errors, local answers, identity, limits."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_contracts.grants import mint
from rein_gateway.actors import CHAT, MESSAGES, Claude, Mini, call_of
from rein_gateway.testing import SECRET, Stage
from rein_service.testing import eventually

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
LOOK = call_of("ls")
HI: list[Any] = [{"role": "user", "content": "hi"}]


async def test_streamed_and_whole_answers_say_the_same_in_both_dialects(stage: Stage) -> None:
    """Case B1: the form is the one that was asked for, though the engine never streams."""
    stage.say(*["So.\n" + LOOK] * 4)
    whole = await stage.post(MESSAGES, {**Claude(stage).body(), "stream": False})
    streamed = await stage.post(MESSAGES, Claude(stage).body())
    assert whole.headers["content-type"] == "application/json"
    assert streamed.headers["content-type"] == "text/event-stream"
    kinds = [event["type"] for event in streamed.events]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block, *block, "message_delta", "message_stop"]
    assert [each["type"] for each in whole.json["content"]] == ["text", "tool_use"]
    assert whole.json["content"][1]["id"].startswith("toolu_")
    assert streamed.events[0]["message"]["usage"]["input_tokens"] == len(stage.engine.seen[1]["token_ids"])
    assert whole.json["usage"]["output_tokens"] == len(stage.ids("So.\n" + LOOK + "<|im_end|>"))

    whole = await stage.post(CHAT, Mini(stage).body())
    streamed = await stage.post(CHAT, {**Mini(stage).body(), "stream": True, "stream_options": {"include_usage": True}})
    message = whole.json["choices"][0]["message"]
    deltas = [event["choices"][0]["delta"] for event in streamed.events if event["choices"]]
    functions = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert functions == [call["function"] for call in message["tool_calls"]]
    assert message["content"] == "So."
    assert streamed.events[-1]["usage"] == whole.json["usage"]
    assert streamed.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(("harness", "path"), [("claude-code-2.1.197", MESSAGES), ("mini-swe-agent-2.4.6", CHAT)])
async def test_requests_as_the_harnesses_sent_them_are_answered(stage: Stage, harness: str, path: str) -> None:
    for number in (1, 2, 3):
        request = json.loads((GOLDEN / harness / f"request-{number}.json").read_text())
        reply = await stage.post(path, request["body"])
        assert reply.status == 200
    assert [code for code in stage.codes() if code != "session.forked"] == []


async def test_a_slow_stream_has_its_start_and_pings_before_its_sample(stage: Stage) -> None:
    stage.engine.gate = asyncio.Event()
    headers = {"x-rein-grant": stage.grant()}
    async with stage.client.post(stage.url + MESSAGES, json=Claude(stage).body(), headers=headers) as response:
        assert response.status == 200
        assert await response.content.readline() == b"event: message_start\n"
        assert b"ping" in await response.content.readuntil(b'"type":"ping"}\n\n')
        stage.engine.gate.set()
        rest = await response.content.read()
    assert rest.count(b"message_start") == 0
    assert rest.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


async def test_an_error_on_a_stream_that_has_begun_is_an_event_of_the_dialect(stage: Stage) -> None:
    stage.engine.gate = asyncio.Event()
    stage.engine.status = 500
    for path, body in ((MESSAGES, Claude(stage).body()), (CHAT, {**Mini(stage).body(), "stream": True})):
        stage.engine.gate.clear()
        calling = asyncio.create_task(stage.post(path, body))
        await eventually(lambda: stage.engine.num_running)
        gate = stage.engine.gate
        asyncio.get_running_loop().call_later(0.4, gate.set)
        reply = await calling
        assert reply.status == 200
        assert "error" in reply.events[-1]


async def test_counting_tokens_probes_and_models_make_no_turn(stage: Stage) -> None:
    """Case C7."""
    counted = await stage.post("/v1/messages/count_tokens?beta=true", Claude(stage).body())
    await stage.post(MESSAGES, Claude(stage).body())
    assert counted.json == {"input_tokens": len(stage.engine.seen[0]["token_ids"])}
    for method, path in (("HEAD", "/"), ("GET", "/"), ("HEAD", "/any/prefix")):
        async with stage.client.request(method, stage.url + path) as response:
            assert response.status == 200
    async with stage.client.get(stage.url + "/x/v1/models", headers={"x-rein-grant": stage.grant()}) as response:
        assert [model["id"] for model in (await response.json())["data"]] == ["policy"]
    assert len(stage.log(ev.TurnCaptured)) == 1


@pytest.mark.parametrize("path", [MESSAGES, CHAT, "/v1/messages/count_tokens", "/rein/v1/attempts/end"])
async def test_nothing_is_answered_without_a_good_grant(stage: Stage, path: str) -> None:
    expired = mint(pb.AttemptGrant(expires_at_s=1), secret=SECRET.encode())
    forged = mint(pb.AttemptGrant(expires_at_s=2**40), secret=b"another")
    for grant in ("", "x.y", expired, forged):
        reply = await stage.post(path, {"messages": HI}, grant=grant)
        assert reply.status == 401
        assert reply.json["error"]["message"]
    assert stage.engine.seen == []


@pytest.mark.parametrize("path", [MESSAGES, CHAT])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": HI, "max_tokens": -1},
    ],
)
async def test_malformed_requests_are_refused_in_the_dialects_form(stage: Stage, path: str, body: Any) -> None:
    reply = await stage.post(path, body)
    assert (reply.status, reply.headers["x-should-retry"]) == (400, "false")
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert stage.log(ev.TurnCaptured) == []


async def test_unknown_paths_are_refused(stage: Stage) -> None:
    assert (await stage.post("/v1/responses", {})).status == 404


async def test_the_sample_is_clamped_to_the_room_left(stage: Stage) -> None:
    """Case C9: Claude asks for 32,000 tokens whatever the window is."""
    stage.say("a b c d e f g")
    await stage.post(MESSAGES, Claude(stage).body(), grant=stage.grant(context_tokens=1000))
    (seen,) = stage.engine.seen
    assert len(seen["token_ids"]) + seen["sampling_params"]["max_tokens"] in (1000, len(seen["token_ids"]) + 512)
    wide = await stage.post("/v1/messages/count_tokens", Claude(stage).body())
    num_prompt = wide.json["input_tokens"]
    reply = await stage.post(
        MESSAGES, Claude(stage, stream=False).body(), grant=stage.grant(member=1, context_tokens=num_prompt + 3)
    )
    assert reply.events == []
    assert stage.engine.seen[1]["sampling_params"]["max_tokens"] == 3


async def test_an_overlong_prompt_is_told_in_words_that_make_harnesses_compact(stage: Stage) -> None:
    """Case C9; a harness that then makes room has not run out of context."""
    grant = stage.grant(context_tokens=300)
    conversation = Claude(stage, task="word " * 400, grant=grant)
    reply = await conversation.ask()
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert reply.json["error"]["message"].startswith("prompt is too long: ")
    chat = await Mini(stage, task="word " * 400, grant=stage.grant(member=1, context_tokens=300)).ask()
    assert chat.json["error"]["code"] == "context_length_exceeded"
    assert stage.codes() == ["prompt.overlong"] * 2
    await Claude(stage, task="short", grant=grant, tools=[]).ask()
    assert (await stage.end(grant=grant)).json == {"num_turns": 1, "limit": None}
    assert (await stage.end(grant=stage.grant(member=1, context_tokens=300))).json == {
        "num_turns": 0,
        "limit": "tokens",
    }


async def test_the_nodes_own_window_bounds_a_prompt_too(stage: Stage) -> None:
    await stage.report(version=2, max_context_tokens=50)
    reply = await Claude(stage, task="word " * 60).ask()
    assert (reply.status, reply.json["error"]["message"][:18]) == (400, "prompt is too long")
    stage.engine.status, stage.engine.error = 400, "The decoder prompt (length 70) plus the number of ... is longer"
    await stage.report(version=3)
    reply = await Claude(stage).ask()
    assert (reply.status, reply.json["error"]["message"][:18]) == (400, "prompt is too long")


async def test_spent_model_calls_end_the_harness_and_are_said_at_the_end(stage: Stage) -> None:
    grant = stage.grant(turns=2)
    conversation = Claude(stage, grant=grant)
    for _ in range(2):
        await conversation.ask()
        conversation.tell("go on")
    reply = await conversation.ask()
    assert (reply.status, reply.json["error"]["type"], reply.headers["x-should-retry"]) == (
        403,
        "permission_error",
        "false",
    )
    assert (await stage.end(grant=grant)).json == {"num_turns": 2, "limit": "turns"}


async def test_ending_an_attempt_is_final_and_may_be_asked_twice(stage: Stage) -> None:
    assert (await stage.end()).status == 404
    await Mini(stage).ask()
    for _ in range(2):
        reply = await stage.end()
        assert (reply.status, reply.json) == (200, {"num_turns": 1, "limit": None})
    assert (await Mini(stage).ask()).status == 403
    assert len(stage.log(ev.TurnCaptured)) == 1


async def test_an_attempt_older_than_this_gateway_is_refused(stage: Stage) -> None:
    """It may have had turns before the gateway was restarted; its rollout is tried anew."""
    reply = await Claude(stage, grant=stage.grant(age_s=60.0)).ask()
    assert (reply.status, "missed" in reply.json["error"]["message"]) == (403, True)
    assert (await stage.end(grant=stage.grant(age_s=60.0))).status == 404


async def test_the_admin_page_tells_sessions_calls_and_nodes(stage: Stage) -> None:
    stage.engine.gate = asyncio.Event()
    calling = asyncio.create_task(Mini(stage).ask())
    await eventually(lambda: stage.engine.num_running)
    status = stage.status()
    assert status.num_in_flight == 1
    assert status.details["sessions"] == "1"
    assert status.details["node node-0"] == "ready, version 1, 1 calls"
    stage.engine.gate.set()
    await calling
    assert stage.status().num_in_flight == 0
