"""What goes wrong around a model call: retries, hang-ups, fences, brokers, engines and nodes that are away."""

import asyncio
from pathlib import Path

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_gateway.actors import CHAT, MESSAGES, Claude, Mini
from rein_gateway.fake_engine import fake_engine
from rein_gateway.testing import GROUP, RUN, Stage, open_stage
from rein_service.clock import FakeClock
from rein_service.testing import eventually


def said(body: object) -> str:
    assert isinstance(body, dict)
    return str(body["content"][0]["text"])


async def fence(stage: Stage, *, member: int = 0, attempt: int = 1) -> None:
    identity = pb.Identity(run=RUN, task="t", group=GROUP, member=member, attempt=attempt)
    before = int(stage.status().details["attempts_fenced"])
    await stage.bus.publish(ev.RolloutFenced(identity=identity))
    await eventually(lambda: int(stage.status().details["attempts_fenced"]) > before)


# ---- the same request again


async def test_a_marked_retry_gets_the_finished_answer(stage: Stage) -> None:
    """Case E2."""
    stage.say("first", "second")
    body = Claude(stage, stream=False).body()
    first = await stage.post(MESSAGES, body)
    again = await stage.post(MESSAGES, body, x_stainless_retry_count="1")
    streamed = await stage.post(MESSAGES, {**body, "stream": True}, x_stainless_retry_count="2")
    assert said(first.json) == said(again.json) == "first"
    assert b"first" in streamed.body
    assert first.json["id"] == again.json["id"] == streamed.events[0]["message"]["id"]
    assert len(stage.log(ev.TurnCaptured)) == len(stage.engine.seen) == 1


async def test_a_marked_retry_joins_the_call_in_flight(stage: Stage) -> None:
    """Case E2; the first client may even hang up meanwhile."""
    stage.engine.gate = asyncio.Event()
    stage.say("only")
    body = Claude(stage, stream=False).body()
    first = asyncio.create_task(stage.post(MESSAGES, body))
    await eventually(lambda: stage.engine.num_running)
    second = asyncio.create_task(stage.post(MESSAGES, body, x_stainless_retry_count="1"))
    third = asyncio.create_task(stage.post(MESSAGES, body, x_stainless_retry_count="1"))
    await eventually(lambda: stage.listener.num_handled == 3)
    first.cancel()
    await eventually(lambda: stage.listener.num_handled == 2)
    stage.engine.gate.set()
    assert said((await second).json) == said((await third).json) == "only"
    assert len(stage.log(ev.TurnCaptured)) == len(stage.engine.seen) == 1
    assert stage.engine.num_aborted == 0


async def test_an_unmarked_request_always_samples_anew(stage: Stage) -> None:
    """Case E3."""
    stage.say("first", "second")
    body = Claude(stage, stream=False).body()
    assert said((await stage.post(MESSAGES, body)).json) == "first"
    assert said((await stage.post(MESSAGES, body, x_stainless_retry_count="0")).json) == "second"
    assert [turn.turn for turn in stage.log(ev.TurnCaptured)] == [0, 1]


async def test_a_marked_retry_with_another_body_or_after_a_failure_samples(stage: Stage) -> None:
    stage.engine.status = 500
    body = Claude(stage, stream=False).body()
    assert (await stage.post(MESSAGES, body)).status == 503
    stage.engine.status = 200
    stage.say("first", "second")
    assert said((await stage.post(MESSAGES, body, x_stainless_retry_count="1")).json) == "first"
    other = Claude(stage, task="another", stream=False).body()
    assert said((await stage.post(MESSAGES, other, x_stainless_retry_count="1")).json) == "second"


# ---- clients and attempts that go


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_client_that_hangs_up_aborts_the_generation_and_nothing_is_recorded(
    stage: Stage, is_streamed: bool
) -> None:
    """Case B9."""
    stage.engine.gate = asyncio.Event()
    calling = asyncio.create_task(stage.post(MESSAGES, Claude(stage, stream=is_streamed).body()))
    await eventually(lambda: stage.engine.num_running)
    calling.cancel()
    await eventually(lambda: stage.engine.num_aborted == 1)
    assert stage.log(ev.TurnCaptured) == []
    stage.engine.gate.set()
    assert (await Claude(stage).ask(x_stainless_retry_count="1")).status == 200
    assert len(stage.log(ev.TurnCaptured)) == 1


async def test_ending_an_attempt_aborts_its_calls(stage: Stage) -> None:
    stage.engine.gate = asyncio.Event()
    calling = asyncio.create_task(Claude(stage).ask())
    await eventually(lambda: stage.engine.num_running)
    assert (await stage.end()).json == {"num_turns": 0, "limit": None}
    assert (await calling).status == 403
    await eventually(lambda: stage.engine.num_aborted == 1)


async def test_a_fenced_attempt_is_refused_and_its_generation_aborted(stage: Stage) -> None:
    await Mini(stage).ask()
    stage.engine.gate = asyncio.Event()
    calling = asyncio.create_task(Mini(stage, task="another").ask())
    await eventually(lambda: stage.engine.num_running)
    await fence(stage)
    assert (await calling).status == 403
    await eventually(lambda: stage.engine.num_aborted == 1)
    stage.engine.gate.set()
    reply = await Mini(stage).ask()
    assert (reply.status, "given up" in reply.json["error"]["message"]) == (403, True)
    assert (await Mini(stage, grant=stage.grant(attempt=2)).ask()).status == 200
    assert len(stage.log(ev.TurnCaptured)) == 2


async def test_a_fence_from_before_the_first_call_counts(stage: Stage) -> None:
    await fence(stage, member=3, attempt=0)
    for attempt in (1, 2):
        assert (await Mini(stage, grant=stage.grant(member=3, attempt=attempt)).ask()).status == 403


async def test_a_restarted_gateway_knows_old_fences_before_it_answers(policy_folder: Path) -> None:
    async with open_stage(policy_folder) as stage:
        await fence(stage)
        async with open_stage(policy_folder, broker=stage.broker) as restarted:
            assert (await Mini(restarted).ask()).status == 403


async def test_an_attempt_nobody_calls_is_ended_and_stays_ended(policy_folder: Path) -> None:
    clock = FakeClock()
    async with open_stage(policy_folder, clock=clock, settings={"session_idle_s": 100.0}) as stage:
        await Mini(stage).ask()
        await clock.advance(200)
        assert stage.status().details["sessions"] == "0"
        assert (await Mini(stage).ask()).status == 403
        assert (await stage.end()).json == {"num_turns": 1, "limit": None}
        await clock.advance(4000)
        assert stage.status().details["sessions_ended"] == "0"


# ---- the bus


async def test_no_answer_ends_before_its_turn_is_acknowledged(stage: Stage) -> None:
    stage.broker.faults.publish_delay_s = 0.6
    headers = {"x-rein-grant": stage.grant()}
    async with stage.client.post(stage.url + MESSAGES, json=Claude(stage).body(), headers=headers) as response:
        begun = await response.content.readuntil(b'"type":"ping"}\n\n')
        assert stage.log(ev.TurnCaptured) == []
        assert b"content_block" not in begun
        await response.content.read()
    assert len(stage.log(ev.TurnCaptured)) == 1


async def test_a_bus_that_is_away_for_a_moment_is_waited_for(policy_folder: Path) -> None:
    async with open_stage(policy_folder, settings={"bus_patience_s": 20.0}) as stage:
        stage.broker.faults.refuse_publish = True
        calling = asyncio.create_task(Mini(stage).ask())
        await eventually(lambda: stage.engine.seen)
        stage.broker.faults.refuse_publish = False
        assert (await calling).status == 200
        assert [turn.turn for turn in stage.log(ev.TurnCaptured)] == [0]


async def test_a_turn_held_back_by_the_bus_is_the_answer_of_the_same_request_later(stage: Stage) -> None:
    """The turn may be in the log already: it costs no second sample, and no second of the attempt's model calls."""
    stage.say("first", "second")
    grant = stage.grant(turns=1)
    body = Claude(stage, stream=False).body()
    stage.broker.faults.refuse_publish = True
    reply = await stage.post(MESSAGES, body, grant=grant)
    assert (reply.status, reply.headers["x-should-retry"]) == (503, "true")
    assert int(reply.headers["retry-after"]) > 0
    stage.broker.faults.refuse_publish = False
    assert said((await stage.post(MESSAGES, body, grant=grant)).json) == "first"
    assert len(stage.engine.seen) == 1


async def test_an_attempt_does_not_end_while_its_last_turn_is_held_back(stage: Stage) -> None:
    stage.broker.faults.refuse_publish = True
    assert (await Mini(stage).ask()).status == 503
    assert (await stage.end()).status == 503
    stage.broker.faults.refuse_publish = False
    assert (await stage.end()).json == {"num_turns": 1, "limit": None}


async def test_a_pending_turn_is_published_before_anything_else_of_its_session(stage: Stage) -> None:
    stage.say("first", "second")
    body = Claude(stage, stream=False).body()
    stage.broker.faults.refuse_publish = True
    assert (await stage.post(MESSAGES, body)).status == 503
    stage.broker.faults.refuse_publish = False
    assert said((await stage.post(MESSAGES, body)).json) == "first"
    assert said((await stage.post(MESSAGES, body)).json) == "second"
    assert [stage.text(list(turn.sampled_ids)) for turn in stage.log(ev.TurnCaptured)] == [
        "first<|im_end|>",
        "second<|im_end|>",
    ]
    assert (await stage.end()).json == {"num_turns": 2, "limit": None}


async def test_the_end_counts_a_turn_whose_acknowledgement_was_lost(stage: Stage) -> None:
    body = Claude(stage, stream=False).body()
    stage.broker.faults.refuse_publish = True
    assert (await stage.post(MESSAGES, body)).status == 503
    stage.broker.faults.refuse_publish = False
    assert (await stage.end()).json == {"num_turns": 1, "limit": None}
    assert len(stage.log(ev.TurnCaptured)) == 1


# ---- engines and nodes


async def test_an_engine_that_fails_is_told_and_the_client_may_try_again(stage: Stage) -> None:
    stage.engine.status = 500
    reply = await Claude(stage).ask()
    assert (reply.status, reply.json["error"]["type"]) == (503, "overloaded_error")
    assert (reply.headers["x-should-retry"], reply.headers["retry-after"]) == ("true", "2")
    assert stage.codes() == ["engine.failed"]
    assert stage.log(ev.TurnCaptured) == []
    stage.engine.status = 200
    assert (await Claude(stage).ask()).status == 200


async def test_another_node_takes_a_call_that_one_has_failed(stage: Stage) -> None:
    async with fake_engine() as second:
        second.status = 500
        for number in range(1, 6):
            await stage.report(node=f"bad-{number}", engine_url=second.url)
        await stage.report(node="gone", engine_url="http://127.0.0.1:9")
        assert (await Mini(stage).ask()).status == 200
    assert {turn.node for turn in stage.log(ev.TurnCaptured)} == {"node-0"}
    assert set(stage.codes()) <= {"engine.failed"}


async def test_an_abort_of_the_engines_own_is_no_turn(stage: Stage) -> None:
    stage.engine.say([5], finish_reason="abort")
    assert (await Mini(stage).ask()).status == 503
    assert stage.log(ev.TurnCaptured) == []


@pytest.mark.parametrize("body", [b"<html>", b'{"choices": []}', b"[1]", b'{"choices": [{"token_ids": 5}]}'])
async def test_a_reply_that_is_none_is_a_failure_of_the_node(stage: Stage, body: bytes) -> None:
    stage.engine.raw = body
    assert (await Mini(stage).ask()).status == 503
    assert stage.codes() == ["engine.failed"]


async def test_a_refusal_of_the_engine_is_nobodys_to_retry(stage: Stage) -> None:
    stage.engine.status, stage.engine.error = 400, "Token id 900 is out of vocabulary"
    reply = await Mini(stage).ask()
    assert (reply.status, reply.headers["x-should-retry"]) == (500, "false")


async def test_calls_wait_for_a_ready_node_and_never_go_to_base_weights(policy_folder: Path) -> None:
    async with open_stage(policy_folder, settings={"node_patience_s": 30.0}) as stage:
        await stage.report(version=0)
        calling = asyncio.create_task(Mini(stage).ask())
        await eventually(lambda: stage.status().details["calls_waiting"] == "1")
        await stage.report(version=3, state=ev.NODE_STATE_FENCED)
        await eventually(lambda: stage.status().details["calls_waiting"] == "1")
        await stage.report(version=4)
        assert (await calling).status == 200
        assert stage.engine.seen[0]["cache_salt"] == "4"


async def test_without_a_ready_node_the_client_is_asked_to_come_back(stage: Stage) -> None:
    await stage.report(version=0)
    for conversation in (Claude(stage), Mini(stage)):
        reply = await conversation.ask()
        assert (reply.status, reply.headers["x-should-retry"]) == (503, "true")
        assert int(reply.headers["retry-after"]) > 0
    other = await Mini(stage, grant=stage.grant()).ask()
    assert other.status == 503


async def test_a_silent_node_is_gone_after_three_intervals(policy_folder: Path) -> None:
    clock = FakeClock()
    async with open_stage(policy_folder, clock=clock) as stage:
        assert (await Mini(stage).ask()).status == 200
        await clock.advance(3 * 60 + 1)
        assert stage.status().details["node node-0"].startswith("silent")
        calling = asyncio.create_task(Mini(stage).ask())
        await eventually(lambda: stage.status().details["calls_waiting"] == "1")
        await clock.advance(1)
        assert (await calling).status == 503


# ---- stopping


async def test_a_gateway_told_to_stop_finishes_its_calls_and_turns_new_ones_away(stage: Stage) -> None:
    stage.engine.gate = asyncio.Event()
    calling = asyncio.create_task(Mini(stage).ask())
    await eventually(lambda: stage.engine.num_running)
    stage.draining.set()
    await eventually(lambda: stage.is_finishing)
    reply = await stage.post(CHAT, Mini(stage, grant=stage.grant(member=1)).body())
    assert (reply.status, reply.headers["x-should-retry"]) == (503, "true")
    stage.engine.gate.set()
    assert (await calling).status == 200
    assert len(stage.log(ev.TurnCaptured)) == 1
