"""Probe, standing, backoff."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rein_inference.domain.backoff import Backoff
from rein_inference.domain.probe import agrees, gap_nats
from rein_inference.domain.standing import NONE, Standing, Weights

LOGPROBS = st.lists(st.floats(min_value=-50, max_value=0), min_size=1, max_size=30)


@settings(deadline=None)
@given(ours=LOGPROBS)
def test_equal_logprobs_have_no_gap(ours: list[float]) -> None:
    assert gap_nats(ours, list(ours)) == 0.0


@settings(deadline=None)
@given(ours=LOGPROBS, shift=st.floats(min_value=0.01, max_value=9))
def test_a_shift_is_the_gap(ours: list[float], shift: float) -> None:
    assert gap_nats(ours, [each - shift for each in ours]) == pytest.approx(shift)


@pytest.mark.parametrize(
    ("ours", "learners"),
    [([], []), ([-1.0], [-1.0, -2.0]), ([math.nan], [-1.0]), ([-math.inf], [-math.inf]), ([-1.0], [math.nan])],
)
def test_doubt_never_passes(ours: list[float], learners: list[float]) -> None:
    assert not agrees(gap_nats(ours, learners), tolerance=1e9)


def test_a_node_is_ready_only_between_a_confirmation_and_the_next_doubt() -> None:
    changes: list[bool] = []
    standing = Standing(on_change=lambda: changes.append(standing.is_ready))
    assert not standing.is_ready
    standing.confirm(Weights("run", 1, "d"))
    standing.hold("weights.switching", "to 2")
    assert standing.weights.version == 1
    standing.confirm(Weights("run", 2, "e"))
    standing.forget("engine.lost", "it died")
    assert standing.weights == NONE
    assert changes == [True, False, True, False]
    standing.forget("engine.lost", "it died")
    assert len(changes) == 4


def test_version_0_never_serves_training() -> None:
    with pytest.raises(ValueError, match="version 0"):
        Standing().confirm(Weights("run", 0, "d"))


@settings(deadline=None)
@given(first_s=st.floats(min_value=0.01, max_value=5), num=st.integers(min_value=1, max_value=200))
def test_waits_double_up_to_a_bound_and_start_over(first_s: float, num: int) -> None:
    backoff = Backoff(first_s, 60.0, max_failures=num)
    waits = [backoff.failed() for _ in range(num)]
    assert waits[0] == first_s
    assert all(a <= b <= 60.0 for a, b in pairwise(waits))
    assert backoff.is_hopeless
    backoff.succeeded()
    assert backoff.failed() == first_s
