"""The gateway over real HTTP on the memory bus, with a scripted engine and the demo policy's own tokenizer."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.protobuf.message import Message
from tokenizers import Tokenizer

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_bus.ports import Start
from rein_contracts.grants import GRANT_HEADER, mint
from rein_contracts.ids import AttemptId
from rein_dialects.rendering import Renderer
from rein_gateway.adapters.http import HttpFace
from rein_gateway.adapters.web import served
from rein_gateway.domain.nodes import Nodes
from rein_gateway.fake_engine import FakeEngine
from rein_gateway.service import Gateway, Settings
from rein_service.clock import SystemClock
from rein_service.testing import eventually

POLICY = Path(__file__).parents[4] / "deploy" / "demo" / "policy"
SECRET = b"secret"
LOOK = '<tool_call>\n{"name": "Bash", "arguments": {"command": "sed -n 2p a.py"}}\n</tool_call>'
FIX = '<tool_call>\n{"name": "Bash", "arguments": {"command": "sed -i \'2s| < | <= |\' a.py"}}\n</tool_call>'
TOOLS = [{"name": "Bash", "description": "", "input_schema": {"type": "object", "properties": {"command": {}}}}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "Bash", "parameters": TOOLS[0]["input_schema"]}}]


@dataclass
class Desk:
    """One gateway and a client of it."""

    gateway: Gateway
    engine: FakeEngine
    broker: MemoryBroker
    nodes: Nodes
    client: aiohttp.ClientSession
    url: str

    def grant(self, *, member: int = 0, issued_in_s: float = 1.0, **limits: int) -> str:
        now_s = time.time()
        grant = pb.AttemptGrant(
            identity=pb.Identity(run="r", task="t", group="r.g0", member=member, attempt=1),
            purpose=pb.PURPOSE_TRAIN,
            sampling=pb.Sampling(temperature=1.0, max_tokens=96),
            limits=pb.Limits(**limits),
            expires_at_s=now_s + 60,
            issued_at_s=now_s + issued_in_s,
        )
        return mint(grant, secret=SECRET)

    async def post(
        self, path: str, body: Any, *, grant: str | None = None, **headers: str
    ) -> tuple[int, str, "aiohttp.typedefs.LooseHeaders"]:
        if grant is None:
            grant = self.grant()
        async with self.client.post(
            self.url + path, data=json.dumps(body), headers={GRANT_HEADER: grant, **headers}
        ) as response:
            return response.status, await response.text(), response.headers

    async def log(self, *kinds: type[Message]) -> list[Message]:
        """What is on the bus."""
        found: list[Message] = []
        async with MemoryBus(self.broker).follow(*kinds, start=Start.EARLIEST) as follower:

            async def read() -> None:
                async for record in follower:
                    found.append(record.message)

            reader = asyncio.create_task(read())
            await follower.caught_up()
            reader.cancel()
            await asyncio.wait([reader])
        return found

    async def turns(self) -> list[ev.TurnCaptured]:
        return [m for m in await self.log(ev.TurnCaptured) if isinstance(m, ev.TurnCaptured)]

    async def finding_codes(self) -> list[str]:
        return [m.code for m in await self.log(ev.FindingRecorded) if isinstance(m, ev.FindingRecorded)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def report(version: int = 1, **changes: Any) -> ev.NodeReported:
    values = {"node": "n", "run": "r", "state": ev.NODE_STATE_READY, "engine_url": "http://engine", "interval_s": 60}
    return ev.NodeReported(version=version, max_context_tokens=2048, **{**values, **changes})


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    broker, nodes, clock = MemoryBroker(), Nodes(), SystemClock()
    engine = FakeEngine(Tokenizer.from_file(str(POLICY / "tokenizer.json")), [LOOK, FIX, "Done."])
    nodes.report(report(), now_s=clock.monotonic())
    settings = Settings(instance="gw", node_patience_s=0.3, bus_patience_s=0.3, spill_calls=8, session_idle_s=60)
    gateway = Gateway(
        bus=MemoryBus(broker), engine=engine, renderer=Renderer(POLICY), nodes=nodes, clock=clock, settings=settings
    )
    face = HttpFace(gateway, secret=SECRET, max_body_bytes=100_000, stream_patience_s=0.2)
    port = free_port()
    async with served(face.app, host="127.0.0.1", port=port), aiohttp.ClientSession() as client:
        yield Desk(gateway, engine, broker, nodes, client, f"http://127.0.0.1:{port}")


def claude(messages: list[Any], *, stream: bool = True) -> dict[str, Any]:
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=ab12"}, {"type": "text", "text": "Repair."}]
    return {
        "model": "policy",
        "max_tokens": 32000,
        "system": system,
        "tools": TOOLS,
        "messages": messages,
        "stream": stream,
    }


def sse(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


async def repair_by_claude(desk: Desk) -> list[Any]:
    """Three turns as Claude Code makes them; arguments come back with an added default, as its Edit tool does."""
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Line 2 of a.py is wrong."}]}]
    results = ["    if a < b:", "(Bash completed with no output)"]
    for result in [*results, None]:
        status, text, _ = await desk.post("/prefix/v1/messages?beta=true", claude(messages))
        assert status == 200
        events = sse(text)
        blocks = [e["content_block"] for e in events if e["type"] == "content_block_start"]
        if result is None:
            assert blocks[0]["type"] == "text"
            return messages
        deltas = [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"]
        use = {**blocks[0], "input": {**json.loads("".join(deltas)), "replace_all": False}}
        answer = {"type": "tool_result", "tool_use_id": use["id"], "content": result, "is_error": False}
        messages.append({"role": "assistant", "content": [use]})
        messages.append({"role": "user", "content": [{**answer, "cache_control": {"type": "ephemeral"}}]})
    raise AssertionError("unreachable")


async def test_a_streamed_repair_is_one_chain_of_exact_token_prefixes(desk: Desk) -> None:
    await repair_by_claude(desk)
    turns = await desk.turns()
    assert [(turn.turn, turn.HasField("parent_turn") and turn.parent_turn) for turn in turns] == [
        (0, False),
        (1, 0),
        (2, 1),
    ]
    whole: list[int] = []
    for turn, prompt in zip(turns, desk.engine.prompts, strict=True):
        whole += turn.prompt_ids
        assert whole == prompt
        assert turn.num_prompt_tokens == len(prompt)
        whole += turn.sampled_ids
        assert turn.is_trainable
        assert len(turn.sampled_ids) == len(turn.logprobs) == turn.versions[0].end
    assert await desk.finding_codes() == []


async def test_the_continued_prompt_is_what_the_template_makes_of_the_whole_conversation(desk: Desk) -> None:
    await repair_by_claude(desk)
    text = desk.engine.tokenizer.decode(desk.engine.prompts[-1], skip_special_tokens=False)
    assert text.count("<|im_start|>tools") == 1
    assert text.endswith("(Bash completed with no output)<|im_end|>\n<|im_start|>assistant\n")
    assert FIX + "<|im_end|>\n<|im_start|>tool\n" in text
    assert "billing" not in text
    assert "replace_all" not in text


async def test_the_event_stream_obeys_the_dialects_grammar(desk: Desk) -> None:
    _, text, headers = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]))
    assert dict(headers)["Content-Type"].startswith("text/event-stream")
    kinds = [event["type"] for event in sse(text)]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block, "message_delta", "message_stop"]
    assert sse(text)[-2]["delta"]["stop_reason"] == "tool_use"
    assert sse(text)[0]["message"]["usage"]["input_tokens"] == len(desk.engine.prompts[0])


async def test_whole_and_streamed_answers_say_the_same_in_both_dialects(desk: Desk) -> None:
    desk.engine.script = [LOOK]
    chat = {"model": "policy", "tools": CHAT_TOOLS, "messages": [{"role": "user", "content": "hi"}]}
    _, whole, _ = await desk.post("/v1/chat/completions", chat)
    _, streamed, _ = await desk.post("/v1/chat/completions", {**chat, "stream": True})
    call = json.loads(whole)["choices"][0]["message"]["tool_calls"][0]["function"]
    deltas = [c["choices"][0]["delta"] for c in sse(streamed) if c["choices"]]
    assert [d["tool_calls"][0]["function"] for d in deltas if "tool_calls" in d] == [call]
    assert json.loads(whole)["choices"][0]["finish_reason"] == "tool_calls"
    _, message, _ = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}], stream=False))
    assert json.loads(message)["content"][0]["input"] == json.loads(call["arguments"])


async def test_a_chat_repair_whose_history_comes_back_reserialised_stays_one_chain(desk: Desk) -> None:
    messages: list[Any] = [{"role": "user", "content": "Line 2 of a.py is wrong."}]
    for _ in range(3):
        body = {"model": "policy", "tools": CHAT_TOOLS, "messages": messages}
        _, text, _ = await desk.post("/v1/chat/completions", body)
        message = json.loads(text)["choices"][0]["message"]
        for call in message.get("tool_calls", []):
            arguments = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = json.dumps(arguments, separators=(",", ":"))
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message.get("tool_calls", [])
        ]
    assert [turn.HasField("parent_turn") for turn in await desk.turns()] == [False, True, True]


async def test_interleaved_conversations_of_one_attempt_are_two_chains(desk: Desk) -> None:
    desk.engine.script = ["one", "two", "three", "four"]
    histories: dict[str, list[Any]] = {name: [{"role": "user", "content": name}] for name in ("A", "B")}
    for name in ("A", "B", "A", "B"):
        body = {"model": "p", "messages": [{"role": "system", "content": f"you are {name}"}, *histories[name]]}
        _, text, _ = await desk.post("/v1/chat/completions", body)
        histories[name] += [json.loads(text)["choices"][0]["message"], {"role": "user", "content": "go on"}]
    parents = [turn.parent_turn if turn.HasField("parent_turn") else None for turn in await desk.turns()]
    assert parents == [None, None, 0, 1]


async def test_a_rewritten_history_opens_a_segment_and_is_a_finding(desk: Desk) -> None:
    messages = await repair_by_claude(desk)
    summary = [{"role": "user", "content": "This session is being continued. " + str(messages)[:40]}]
    await desk.post("/v1/messages", claude(summary))
    turns = await desk.turns()
    assert not turns[-1].HasField("parent_turn")
    assert await desk.finding_codes() == ["session.forked"]


async def test_a_marked_retry_gets_the_same_answer_and_an_unmarked_one_samples_anew(desk: Desk) -> None:
    desk.engine.script = ["first", "second"]
    body = claude([{"role": "user", "content": "hi"}], stream=False)
    _, first, _ = await desk.post("/v1/messages", body)
    _, again, _ = await desk.post("/v1/messages", body, **{"x-stainless-retry-count": "1"})
    _, anew, _ = await desk.post("/v1/messages", body, **{"x-stainless-retry-count": "0"})
    assert json.loads(first)["content"] == json.loads(again)["content"] == [{"type": "text", "text": "first"}]
    assert json.loads(anew)["content"] == [{"type": "text", "text": "second"}]
    assert len(await desk.turns()) == 2


async def test_the_runs_sampling_wins_and_the_conflict_is_a_finding(desk: Desk) -> None:
    body = {"model": "p", "messages": [{"role": "user", "content": "hi"}], "top_p": 0.9, "temperature": 0.2, "foo": 1}
    await desk.post("/v1/chat/completions", body)
    assert desk.engine.samplings[0].temperature == 1.0
    assert await desk.finding_codes() == ["sampling.overridden", "request.unknown_fields"]


async def test_count_tokens_heads_and_models_make_no_turn(desk: Desk) -> None:
    body = claude([{"role": "user", "content": "hi"}])
    status, text, _ = await desk.post("/v1/messages/count_tokens", body)
    assert (status, json.loads(text)["input_tokens"] > 10) == (200, True)
    async with desk.client.head(desk.url + "/") as head, desk.client.get(desk.url + "/v1/models") as models:
        assert head.status == models.status == 200
    assert await desk.turns() == []


@pytest.mark.parametrize(
    ("fault", "code"), [("omits_logprobs", "tokens.length_mismatch"), ("omits_ids", "tokens.none")]
)
async def test_what_the_engine_left_out_is_not_made_up(desk: Desk, fault: str, code: str) -> None:
    setattr(desk.engine, fault, True)
    await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]))
    (turn,) = await desk.turns()
    assert not turn.is_trainable
    assert turn.untrainable == code
    assert len(turn.logprobs) == 0
    assert await desk.finding_codes() == [code]


async def test_base_weights_never_serve_and_a_version_of_zero_is_untrainable(desk: Desk) -> None:
    desk.engine.version = 0
    await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]))
    assert (await desk.turns())[0].untrainable == "tokens.bad_versions"
    desk.nodes.report(report(version=0), now_s=time.monotonic())
    status, _, headers = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]))
    assert status == 503
    assert "Retry-After" in dict(headers) or "retry-after" in dict(headers)


async def test_no_answer_leaves_before_its_turn_is_acknowledged(desk: Desk) -> None:
    desk.broker.faults.publish_delay_s = 0.15
    started_s = time.monotonic()
    await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}], stream=False))
    assert time.monotonic() - started_s >= 0.15
    assert len(await desk.turns()) == 1


async def test_a_bus_that_stays_away_fails_the_call_retryably_and_loses_the_session(desk: Desk) -> None:
    desk.broker.faults.publish_delay_s = 5
    status, text, _ = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}], stream=False))
    assert status == 503
    assert json.loads(text)["type"] == "error"
    status, _, _ = await desk.post("/rein/v1/attempts/end", {})
    assert status == 404


async def test_nobody_gets_in_without_a_grant(desk: Desk) -> None:
    body = claude([{"role": "user", "content": "hi"}])
    for grant in ("", "abc.def", mint(pb.AttemptGrant(expires_at_s=time.time() + 9), secret=b"other")):
        status, text, _ = await desk.post("/v1/messages", body, grant=grant)
        assert status == 401
        assert json.loads(text)["error"]["type"] == "authentication_error"
    status, _, _ = await desk.post("/v1/messages", body, grant=mint(pb.AttemptGrant(expires_at_s=1), secret=SECRET))
    assert status == 401


async def test_a_session_this_gateway_may_have_missed_is_refused(desk: Desk) -> None:
    grant = desk.grant(issued_in_s=-3600)
    status, text, _ = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]), grant=grant)
    assert status == 403
    assert "missed" in text


async def test_ending_an_attempt_counts_its_turns_and_closes_it(desk: Desk) -> None:
    await repair_by_claude(desk)
    status, text, _ = await desk.post("/rein/v1/attempts/end", {})
    assert (status, json.loads(text)) == (200, {"num_turns": 3, "limit": None})
    status, _, _ = await desk.post("/rein/v1/attempts/end", {})
    assert status == 404


async def test_spent_turns_and_a_full_window_are_told_in_the_dialects_words(desk: Desk) -> None:
    body = claude([{"role": "user", "content": "hi"}], stream=False)
    grant = desk.grant(turns=1)
    await desk.post("/v1/messages", body, grant=grant)
    status, _, _ = await desk.post("/v1/messages", body, grant=grant)
    assert status == 403
    _, text, _ = await desk.post("/rein/v1/attempts/end", {}, grant=grant)
    assert json.loads(text) == {"num_turns": 1, "limit": "turns"}
    narrow = desk.grant(member=1, context_tokens=20)
    status, text, _ = await desk.post("/v1/messages", body, grant=narrow)
    assert status == 400
    assert json.loads(text)["error"]["message"].startswith("prompt is too long")


async def test_the_sample_is_clamped_to_the_room_left(desk: Desk) -> None:
    body = claude([{"role": "user", "content": "hi"}], stream=False)
    _, text, _ = await desk.post("/v1/messages", body, grant=desk.grant(context_tokens=60))
    answer = json.loads(text)
    assert answer["usage"]["input_tokens"] + desk.engine.samplings[0].max_tokens == 60
    assert answer["stop_reason"] == "max_tokens"


async def test_a_fenced_attempt_is_cut_off_and_its_generation_aborted(desk: Desk) -> None:
    desk.engine.hold = asyncio.Event()
    calling = asyncio.create_task(desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}], stream=False)))
    await eventually(lambda: desk.engine.prompts)
    await desk.gateway.fence(AttemptId("r.g0", 0, 1))
    status, _, _ = await calling
    assert status == 403
    assert desk.engine.num_aborted == 1
    status, _, _ = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]))
    assert status == 403
    assert await desk.turns() == []


async def test_a_client_that_hangs_up_aborts_its_generation(desk: Desk) -> None:
    desk.engine.hold = asyncio.Event()
    calling = asyncio.create_task(desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}])))
    await eventually(lambda: desk.engine.prompts)
    calling.cancel()
    await asyncio.wait([calling])
    await eventually(lambda: desk.engine.num_aborted == 1)
    assert await desk.turns() == []


async def test_a_slow_stream_gets_its_headers_and_pings_first(desk: Desk) -> None:
    desk.engine.hold = asyncio.Event()
    headers = {GRANT_HEADER: desk.grant()}
    body = json.dumps(claude([{"role": "user", "content": "hi"}]))
    async with desk.client.post(desk.url + "/v1/messages", data=body, headers=headers) as response:
        assert response.status == 200
        first = await response.content.readline()
        assert first == b"event: ping\n"
        desk.engine.hold.set()
        rest = (await response.content.read()).decode()
    assert sse(rest)[-1]["type"] == "message_stop"


async def test_an_engine_that_is_down_is_told_retryably(desk: Desk) -> None:
    desk.engine.is_down = True
    status, _, _ = await desk.post("/v1/messages", claude([{"role": "user", "content": "hi"}]))
    assert status == 503
    assert await desk.turns() == []


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
    ],
)
async def test_malformed_requests_are_refused_by_name(desk: Desk, body: Any) -> None:
    for path in ("/v1/messages", "/v1/chat/completions"):
        status, text, _ = await desk.post(path, body)
        assert status == 400
        assert json.loads(text)["error"]["message"]
    status, _, _ = await desk.post("/v1/messages", {"messages": "x" * 200_000})
    assert status == 413
