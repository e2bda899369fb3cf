"""Turns become segments: exact prefixes, forks, flawed turns; every sampled token trains once."""

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein_tokens import Turn, segments_of, turn_of


def event(
    turn: int, *, parent: int | None = None, prompt: list[int], whole: int | None = None, sample: list[int]
) -> ev.TurnCaptured:
    """A trainable turn; `whole` = length of the whole prompt, default: no parent."""
    return ev.TurnCaptured(
        turn=turn,
        parent_turn=parent,
        kind=ev.TURN_KIND_MAIN,
        prompt_ids=prompt,
        num_prompt_tokens=len(prompt) if whole is None else whole,
        sampled_ids=sample,
        logprobs=[-0.5] * len(sample),
        versions=[ev.VersionSpan(version=1, start=0, end=len(sample))],
        is_trainable=True,
    )


def turns(*events: ev.TurnCaptured) -> dict[int, Turn]:
    return {each.turn: turn_of(each) for each in events}


def test_a_chain_of_turns_is_one_row_of_prompts_and_samples() -> None:
    found = segments_of(
        turns(
            event(0, prompt=[1, 2], sample=[3]),
            event(1, parent=0, prompt=[4], whole=4, sample=[5, 6]),
        )
    )
    (row,) = found.segments
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert row.is_trainable.tolist() == [False, False, True, False, True, True]
    assert row.sampled_at.tolist() == [2, 4, 5]
    assert row.turns == (0, 1)
    assert found.flaws == {}


def test_interleaved_conversations_are_two_rows() -> None:
    """Case E1: A1 B1 A2 B2 with two system prompts."""
    found = segments_of(
        turns(
            event(0, prompt=[1], sample=[2]),
            event(1, prompt=[9], sample=[8]),
            event(2, parent=0, prompt=[3], whole=3, sample=[4]),
            event(3, parent=1, prompt=[7], whole=3, sample=[6]),
        )
    )
    assert [row.token_ids.tolist() for row in found.segments] == [[1, 2, 3, 4], [9, 8, 7, 6]]


def test_of_two_continuations_the_longer_lived_keeps_the_chain_and_the_other_gets_the_shared_part_as_prompt() -> None:
    found = segments_of(
        turns(
            event(0, prompt=[1], sample=[2]),
            event(1, parent=0, prompt=[3], whole=3, sample=[4]),
            event(2, parent=0, prompt=[5], whole=3, sample=[6]),
            event(3, parent=1, prompt=[7], whole=5, sample=[8]),
        )
    )
    assert [row.turns for row in found.segments] == [(0, 1, 3), (2,)]
    fork = found.segments[1]
    assert fork.token_ids.tolist() == [1, 2, 5, 6]
    assert fork.is_trainable.tolist() == [False, False, False, True]


def test_a_turn_that_is_no_continuation_of_the_parent_it_names_is_left_out_and_nothing_raises() -> None:
    """Case A3: one non-prefix pair."""
    found = segments_of(
        turns(
            event(0, prompt=[1, 2], sample=[3]),
            event(1, parent=0, prompt=[4], whole=9, sample=[5]),
            event(2, parent=1, prompt=[6], whole=11, sample=[7]),
            event(3, parent=8, prompt=[6], whole=11, sample=[7]),
        )
    )
    assert [row.turns for row in found.segments] == [(0,)]
    assert {index: flaw.code for index, flaw in found.flaws.items()} == {
        1: "tokens.prompt_length",
        2: "tokens.parent_missing",
        3: "tokens.parent_missing",
    }


def test_a_turn_that_names_itself_or_a_later_turn_as_its_parent_is_left_out() -> None:
    found = segments_of(
        turns(event(0, parent=0, prompt=[], whole=2, sample=[3]), event(1, parent=2, prompt=[], whole=2, sample=[3]))
    )
    assert found.segments == ()
    assert set(found.flaws) == {0, 1}


def test_the_sample_of_a_flawed_turn_is_context_for_those_that_continue_it() -> None:
    broken = event(0, prompt=[1], sample=[2, 3])
    del broken.logprobs[1:]
    found = segments_of(turns(broken, event(1, parent=0, prompt=[4], whole=4, sample=[5])))
    (row,) = found.segments
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5]
    assert row.is_trainable.tolist() == [False, False, False, False, True]
    assert found.flaws[0].code == "tokens.length_mismatch"


@st.composite
def attempts(draw: st.DrawFn) -> tuple[list[ev.TurnCaptured], dict[int, list[int]]]:
    """Random forests of turns in which every sampled token is unlike all others; and each turn's whole sequence."""
    numbers = iter(range(1, 10_000))
    events: list[ev.TurnCaptured] = []
    whole: dict[int, list[int]] = {}
    for index in range(draw(st.integers(1, 12))):
        parent = draw(st.one_of(st.none(), st.integers(0, index - 1))) if index else None
        before = [] if parent is None else whole[parent]
        prompt = [next(numbers) for _ in range(draw(st.integers(1 if parent is None else 0, 3)))]
        sample = [next(numbers) for _ in range(draw(st.integers(0, 3)))]
        turn = event(index, parent=parent, prompt=prompt, whole=len(before) + len(prompt), sample=sample)
        turn.is_trainable = draw(st.booleans()) or draw(st.booleans())
        for place in range(len(sample)):
            turn.logprobs[place] = -float(sample[place])
        events.append(turn)
        whole[index] = [*before, *prompt, *sample]
    return events, whole


@given(attempts(), st.randoms())
def test_every_trainable_token_trains_exactly_once_under_its_own_logprob_and_context(
    drawn: tuple[list[ev.TurnCaptured], dict[int, list[int]]],
    random: Random,
) -> None:
    events, whole = drawn
    shuffled = list(events)
    random.shuffle(shuffled)
    found = segments_of(turns(*shuffled))
    trained: Counter[int] = Counter()
    for row in found.segments:
        assert len(row.token_ids) == len(row.is_trainable)
        assert len(row.sampled_at) == len(row.logprobs) == len(row.versions)
        assert np.flatnonzero(row.is_trainable).tolist() == row.sampled_at.tolist()
        assert row.token_ids.tolist() == whole[row.turns[-1]]
        assert row.logprobs.tolist() == [-float(token) for token in row.token_ids[row.sampled_at]]
        trained.update(row.token_ids[row.sampled_at].tolist())
    wanted = Counter(token for each in events if each.is_trainable for token in each.sampled_ids)
    assert trained == wanted
