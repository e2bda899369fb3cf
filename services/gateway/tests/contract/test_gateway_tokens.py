"""Token truth over real HTTP (design rule 1): chains, segments, forks, and what may be trained on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rein.v1 import events_pb2 as ev
from rein_dialects.testing import FORGETFUL, make_policy
from rein_gateway.actors import CHAT, Claude, Mini, call_of
from rein_gateway.fake_engine import logprob_of
from rein_gateway.testing import Stage, open_stage
from rein_tokens import segments_of, turn_of, unspill

LOOK, FIX = call_of("sed -n 2p a.py"), call_of("sed -i 's/<=/</' a.py", before="It is the operator.\n")


def parents(turns: list[ev.TurnCaptured]) -> list[int | None]:
    return [turn.parent_turn if turn.HasField("parent_turn") else None for turn in turns]


def assert_chained(stage: Stage) -> None:
    """Each prompt the engine saw is, id by id, what the turns say it was; samples and log-probs are the engine's."""
    known: dict[int, list[int]] = {}
    for turn, sent in zip(stage.log(ev.TurnCaptured), stage.engine.seen, strict=True):
        before = known[turn.parent_turn] if turn.HasField("parent_turn") else []
        assert [*before, *turn.prompt_ids] == sent["token_ids"]
        assert turn.num_prompt_tokens == len(sent["token_ids"])
        known[turn.turn] = [*sent["token_ids"], *turn.sampled_ids]
        assert turn.is_trainable
        assert list(turn.logprobs) == pytest.approx([logprob_of(each, at) for at, each in enumerate(turn.sampled_ids)])
        assert [(span.version, span.start, span.end) for span in turn.versions] == [(1, 0, len(turn.sampled_ids))]


def num_segments(stage: Stage) -> int:
    turns = {turn.turn: turn_of(turn) for turn in stage.log(ev.TurnCaptured)}
    return len(segments_of(turns).segments)


@pytest.mark.parametrize("harness", [Claude, Mini])
async def test_a_repair_is_one_chain_of_exact_token_prefixes(stage: Stage, harness: type[Claude | Mini]) -> None:
    """Also case C1: the billing header differs in each of Claude's calls, and its arguments gain a default."""
    conversation = harness(stage)
    stage.say(LOOK, FIX, "Done.")
    for result in ("    if a <= b:", "", "thanks"):
        assert (await conversation.ask()).status == 200
        conversation.tell(result)
    turns = stage.log(ev.TurnCaptured)
    assert parents(turns) == [None, 0, 1]
    assert [turn.turn for turn in turns] == [0, 1, 2]
    assert num_segments(stage) == 1
    assert_chained(stage)
    assert "session.forked" not in stage.codes()
    told = stage.text(stage.engine.seen[-1]["token_ids"])
    assert "billing" not in told
    assert "replace_all" not in told
    assert told.endswith(f"{FIX}<|im_end|>\n<|im_start|>tool\n<|im_end|>\n<|im_start|>assistant\n")


async def test_a_template_that_forgets_reasoning_makes_one_row_of_five_turns(tmp_path: Path) -> None:
    """Case A1: and the harness drops reasoning too."""
    async with open_stage(make_policy(tmp_path / "forgetful", template=FORGETFUL)) as stage:
        conversation = Mini(stage)
        for number in range(5):
            stage.say(f"<think>\nthought {number}\n</think>\n\nanswer {number}")
            await conversation.ask()
            assert conversation.messages[-1].pop("reasoning_content") == f"thought {number}"
            conversation.tell("go on")
        assert parents(stage.log(ev.TurnCaptured)) == [None, 0, 1, 2, 3]
        assert num_segments(stage) == 1
        assert_chained(stage)


async def test_a_split_pair_of_tokens_keeps_its_split(stage: Stage) -> None:
    """Cases A2, A8: ids are the generating call's own, whatever a tokenizer would make of the text."""
    (end,) = stage.ids("<|im_end|>")
    spelt = [stage.ids(letter)[0] for letter in "hello"]
    assert spelt != stage.ids("hello")
    stage.engine.say([*spelt, end])
    conversation = Mini(stage)
    assert (await conversation.ask()).json["choices"][0]["message"]["content"] == "hello"
    conversation.tell("again")
    await conversation.ask()
    assert list(stage.log(ev.TurnCaptured)[0].sampled_ids) == [*spelt, end]
    assert_chained(stage)


async def test_a_special_token_inside_a_sample_shifts_nothing(stage: Stage) -> None:
    """Case A11."""
    (start,), (end,) = stage.ids("<|im_start|>"), stage.ids("<|im_end|>")
    stage.engine.say([*stage.ids("a"), start, *stage.ids("b"), end])
    conversation = Mini(stage)
    assert (await conversation.ask()).json["choices"][0]["message"]["content"] == "a<|im_start|>b"
    conversation.tell("go on")
    await conversation.ask()
    assert_chained(stage)


async def test_a_sample_cut_by_its_length_is_continued_with_an_end_of_turn(stage: Stage) -> None:
    conversation = Mini(stage)
    stage.say("I was cut", ended=False)
    reply = await conversation.ask()
    assert reply.json["choices"][0]["finish_reason"] == "length"
    conversation.tell("go on")
    await conversation.ask()
    assert "I was cut<|im_end|>\n<|im_start|>user\ngo on" in stage.text(stage.engine.seen[-1]["token_ids"])
    assert_chained(stage)


async def test_interleaved_conversations_of_one_attempt_stay_apart(stage: Stage) -> None:
    """Case E1."""
    pair = [Mini(stage, system=f"You are {name}.") for name in ("A", "B")]
    for conversation in (*pair, *pair):
        await conversation.ask()
        conversation.tell("go on")
    assert parents(stage.log(ev.TurnCaptured)) == [None, None, 0, 1]
    assert num_segments(stage) == 2
    assert_chained(stage)


async def test_a_rewritten_history_opens_a_segment_or_branches_off_the_last_turn_that_fits(stage: Stage) -> None:
    conversation = Mini(stage)
    stage.say(LOOK, FIX, "Done.")
    for result in ("    if a <= b:", "", "and?"):
        await conversation.ask()
        conversation.tell(result)
    conversation.messages[5]["content"] = "(result cleared)"  # behind the second call
    await conversation.ask()
    conversation.messages = [{"role": "user", "content": "This session is being continued from before."}]
    await conversation.ask()
    assert parents(stage.log(ev.TurnCaptured)) == [None, 0, 1, 1, None]
    assert stage.codes() == ["session.forked"] * 2
    assert_chained(stage)


async def test_an_answer_the_harness_leaves_out_of_its_history_is_a_fork(stage: Stage) -> None:
    """As mini-swe-agent does with an answer without a call."""
    conversation = Mini(stage)
    stage.say(LOOK, "no call at all", FIX)
    await conversation.ask()
    conversation.tell("    if a <= b:")
    kept = list(conversation.messages)
    await conversation.ask()
    conversation.messages = [*kept, {"role": "user", "content": "Every answer needs a tool call."}]
    await conversation.ask()
    assert parents(stage.log(ev.TurnCaptured)) == [None, 0, 0]
    assert [finding.detail for finding in stage.log(ev.FindingRecorded)] == ["a second continuation of turn 0"]
    assert num_segments(stage) == 2
    assert_chained(stage)


async def test_arguments_of_calls_that_were_never_sampled_here_are_compared_as_json(stage: Stage) -> None:
    """A harness's own few-shot turns have ids of their own; a change in them is a change."""
    made_up = {"id": "x", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "ls", "t": 1}'}}
    conversation = Mini(stage)
    conversation.messages += [
        {"role": "assistant", "content": None, "tool_calls": [made_up]},
        {"role": "tool", "tool_call_id": "x", "content": "a.py"},
    ]
    await conversation.ask()
    made_up["function"] = {"name": "Bash", "arguments": '{"t":1,"command":"ls"}'}
    conversation.tell("go on")
    await conversation.ask()
    made_up["function"] = {"name": "Bash", "arguments": '{"command": "rm", "t": 1}'}
    conversation.tell("go on")
    await conversation.ask()
    assert parents(stage.log(ev.TurnCaptured)) == [None, 0, None]


async def test_titles_without_tools_are_side_calls_and_a_harness_without_tools_has_none(stage: Stage) -> None:
    """Case E5."""
    conversation = Mini(stage)
    await conversation.ask()
    await Mini(stage, task="Make a title.", tools=[]).ask()
    toolless = Mini(stage, tools=[], grant=stage.grant(member=1))
    await toolless.ask()
    kinds = {(turn.identity.member, turn.turn): turn.kind for turn in stage.log(ev.TurnCaptured)}
    assert kinds == {(0, 0): ev.TURN_KIND_MAIN, (0, 1): ev.TURN_KIND_SIDE, (1, 0): ev.TURN_KIND_MAIN}


def choice_of(reply: dict[str, Any]) -> Any:
    return reply["choices"][0]


def uncounted(reply: dict[str, Any]) -> None:
    reply["usage"] = None


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no log-probs": (lambda r: choice_of(r).update(logprobs=None), "tokens.length_mismatch"),
    "fewer log-probs": (lambda r: choice_of(r)["logprobs"]["content"].pop(), "tokens.length_mismatch"),
    "others' log-probs": (lambda r: choice_of(r)["logprobs"]["content"][0].update(token_id=0), "tokens.id_mismatch"),
    "impossible": (lambda r: choice_of(r)["logprobs"]["content"][0].update(logprob=-9999.0), "tokens.bad_logprob"),
    "no versions": (lambda r: choice_of(r).update(weight_versions=None), "tokens.length_mismatch"),
    "a gap in versions": (lambda r: choice_of(r)["weight_versions"][0].update(end=1), "tokens.length_mismatch"),
    "base weights": (lambda r: choice_of(r)["weight_versions"][0].update(version="default"), "tokens.version_unknown"),
    "fewer ids than counted": (lambda r: r["usage"].update(completion_tokens=99), "tokens.length_mismatch"),
    "another prompt": (lambda r: r["usage"].update(prompt_tokens=1), "tokens.prompt_mismatch"),
    "no counts": (uncounted, "tokens.prompt_mismatch"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_what_the_engine_left_out_is_never_made_up(stage: Stage, name: str) -> None:
    """Cases A4, D4, F3: the turn is recorded and withheld; the conversation goes on from its ids."""
    stage.say("Hello there.")
    stage.engine.spoil, code = FAULTS[name]
    conversation = Mini(stage)
    assert (await conversation.ask()).status == 200
    (turn,) = stage.log(ev.TurnCaptured)
    assert (turn.is_trainable, turn.untrainable) == (False, code)
    assert turn_of(turn).flaw is not None
    (finding,) = stage.log(ev.FindingRecorded)
    assert (finding.code, finding.is_fatal, finding.turn) == (code, True, 0)
    stage.engine.spoil = None
    conversation.tell("go on")
    await conversation.ask()
    assert parents(stage.log(ev.TurnCaptured)) == [None, 0]


async def test_a_call_without_ids_is_recorded_withheld_and_not_answered(stage: Stage) -> None:
    """Case A5."""

    def spoil(reply: dict[str, Any]) -> None:
        reply["choices"][0]["token_ids"] = None

    stage.engine.spoil = spoil
    reply = await Mini(stage).ask()
    assert (reply.status, reply.headers["x-should-retry"]) == (503, "true")
    (turn,) = stage.log(ev.TurnCaptured)
    assert (list(turn.sampled_ids), turn.is_trainable, turn.untrainable) == ([], False, "tokens.missing")


async def test_a_call_that_saw_an_update_carries_both_versions(stage: Stage) -> None:
    stage.say("Hello")
    num = len(stage.ids("Hello<|im_end|>"))
    stage.engine.versions = [("1", 0, 1), ("2", 1, num)]
    await Mini(stage).ask()
    (turn,) = stage.log(ev.TurnCaptured)
    assert [(span.version, span.start, span.end) for span in turn.versions] == [(1, 0, 1), (2, 1, num)]
    assert turn.is_trainable


async def test_a_version_older_than_the_node_confirmed_is_told(stage: Stage) -> None:
    await stage.report(version=7)
    await Mini(stage).ask()
    assert stage.codes() == ["tokens.version_unexpected"]
    assert stage.engine.seen[0]["cache_salt"] == "7"


async def test_the_runs_sampling_wins_and_what_was_asked_is_told_once(stage: Stage) -> None:
    """Cases D1, D2, A7."""
    asked: dict[str, Any] = {
        "temperature": 0.2,
        "top_p": 0.9,
        "top_k": 5,
        "presence_penalty": 0,
        "stop": ["x"],
        "foo": 1,
    }
    conversation = Mini(stage, grant=stage.grant(temperature=0.75), **asked)
    for _ in range(2):
        await conversation.ask()
        conversation.tell("go on")
    for seen in stage.engine.seen:
        parameters = seen["sampling_params"]
        assert (parameters["temperature"], parameters["top_p"], parameters["top_k"]) == (0.75, 1.0, -1)
        assert "min_tokens" not in parameters
        assert "stop" not in parameters
        assert parameters["logprobs"] == 0
    told = sorted((finding.code, finding.detail) for finding in stage.log(ev.FindingRecorded))
    assert told == [
        ("request.unknown_fields", "foo"),
        ("sampling.overridden", "the harness asked for stop=['x']"),
        ("sampling.overridden", "the harness asked for temperature=0.2"),
        ("sampling.overridden", "the harness asked for top_k=5"),
        ("sampling.overridden", "the harness asked for top_p=0.9"),
    ]
    turn = stage.log(ev.TurnCaptured)[0]
    assert (turn.sampling.temperature, turn.sampling.max_tokens) == (0.75, 512)


async def test_a_sample_that_cannot_be_read_is_text_and_told(stage: Stage) -> None:
    stage.say('<tool_call>\n{"name": "Bash", "argum')
    reply = await Claude(stage).ask()
    assert [event["type"] for event in reply.events].count("content_block_start") == 1
    assert "sample.tool_call_unclosed" in stage.codes()


async def test_a_call_made_while_thinking_is_made(stage: Stage) -> None:
    """Case B3."""
    stage.say(f"<think>\nI look: {LOOK}")
    conversation = Mini(stage)
    reply = await conversation.ask()
    assert len(reply.json["choices"][0]["message"]["tool_calls"]) == 1
    assert stage.codes() == ["sample.tool_call_inside_reasoning"]


async def test_arrays_of_a_large_turn_go_to_the_blob_store(stage: Stage) -> None:
    await Mini(stage, task="word " * 150_000).ask()
    (turn,) = stage.log(ev.TurnCaptured)
    assert (list(turn.prompt_ids), list(turn.sampled_ids)) == ([], [])
    arrays = unspill(stage.blobs.stored[turn.arrays.sha256])
    assert list(arrays.prompt_ids) == stage.engine.seen[0]["token_ids"]
    assert len(arrays.sampled_ids) == len(arrays.logprobs) == 1


async def test_two_calls_at_once_are_numbered_without_gaps(stage: Stage) -> None:
    calls = [stage.post(CHAT, Mini(stage, task=f"task {number}").body()) for number in range(8)]
    assert {reply.status for reply in await asyncio.gather(*calls)} == {200}
    assert sorted(turn.turn for turn in stage.log(ev.TurnCaptured)) == list(range(8))
