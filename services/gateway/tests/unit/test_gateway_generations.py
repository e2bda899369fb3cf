"""What may be trained on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_gateway.domain.asked import overridden
from rein_gateway.domain.generation import Generation
from rein_tokens import turn_of


def generation(**changes: Any) -> Generation:
    good = {
        "token_ids": (1, 2, 3),
        "logprobs": (-0.5, 0.0, -3.0),
        "logprob_ids": (1, 2, 3),
        "versions": ((4, 0, 2), (5, 2, 3)),
        "finish_reason": "stop",
        "num_prompt_tokens": 9,
        "num_sampled_tokens": 3,
    }
    return Generation(**{**good, **changes})


def test_a_whole_generation_is_without_fault() -> None:
    assert generation().fault(num_prompt_tokens=9) is None


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), -9999.0, 0.1])
def test_a_log_probability_that_is_none_is_a_fault(value: float) -> None:
    fault = generation(logprobs=(value, -1.0, -1.0)).fault(num_prompt_tokens=9)
    assert fault is not None
    assert fault.code == "tokens.bad_logprob"


@pytest.mark.parametrize(
    "versions",
    [
        (),
        ((4, 0, 2),),
        ((4, 0, 2), (5, 1, 3)),
        ((4, 1, 3),),
        ((4, 0, 4),),
        ((4, 0, 0), (4, 0, 3)),
        ((4, 0, 3), (5, 3, 3)),
    ],
)
def test_version_spans_with_gap_or_overlap_are_a_fault(versions: tuple[tuple[int, int, int], ...]) -> None:
    fault = generation(versions=versions).fault(num_prompt_tokens=9)
    assert fault is not None
    assert fault.code == "tokens.length_mismatch"


SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), max_size=3).map(tuple)
LOGPROBS = st.lists(st.sampled_from([-0.5, 0.0, 1.0, float("nan"), -9999.0]), max_size=4).map(tuple)


@given(st.lists(st.integers(0, 9), max_size=4).map(tuple), LOGPROBS, SPANS, st.integers(0, 4))
def test_whatever_passes_here_passes_where_it_is_trained(
    ids: tuple[int, ...], logprobs: tuple[float, ...], versions: tuple[tuple[int, int, int], ...], counted: int
) -> None:
    """Case D4: all lengths equal, or withheld."""
    made = generation(token_ids=ids, logprobs=logprobs, logprob_ids=ids, versions=versions, num_sampled_tokens=counted)
    if made.fault(num_prompt_tokens=9) is None:
        turn = ev.TurnCaptured(
            prompt_ids=range(9),
            num_prompt_tokens=9,
            sampled_ids=ids,
            logprobs=logprobs,
            versions=made.spans(),
            is_trainable=True,
        )
        assert turn_of(turn).flaw is None
        assert len(ids) == len(logprobs) == counted == sum(end - start for _, start, end in versions)


def test_settings_that_change_nothing_are_not_told() -> None:
    asked = {"temperature": 0.5, "top_p": 1.0, "top_k": -1, "stop": [], "tool_choice": "auto", "seed": None}
    assert overridden(asked, sampling=pb.Sampling(temperature=0.5)) == []
    assert overridden({"temperature": 1, "seed": 7}, sampling=pb.Sampling(temperature=0.5)) == [
        "temperature=1",
        "seed=7",
    ]
