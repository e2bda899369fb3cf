"""Advantages, the clipped objective, and the agreement of log-probabilities."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rein_objectives import Clipping, agreement_of, clipped_loss, group_advantages, token_logprobs

CLIP = Clipping(low=0.2, high=0.3)


@given(st.dictionaries(st.integers(0, 15), st.floats(-10, 10), max_size=16))
def test_advantages_of_a_group_sum_to_nothing(rewards: dict[int, float]) -> None:
    advantages = group_advantages(rewards)
    assert advantages.keys() == rewards.keys()
    assert math.isclose(sum(advantages.values()), 0, abs_tol=1e-9)


@given(st.lists(st.integers(0, 15), min_size=1, unique=True), st.floats(0, 1))
def test_a_group_whose_rewards_are_equal_has_exactly_no_signal(members: list[int], reward: float) -> None:
    assert set(group_advantages(dict.fromkeys(members, reward)).values()) == {0.0}


def test_the_baseline_is_over_rollouts_not_rows() -> None:
    """Case J1: rewards [1 (3 rows), 0] have the baseline 0.5."""
    assert group_advantages({0: 1.0, 1: 0.0}) == {0: 0.5, 1: -0.5}


def test_dividing_by_the_deviation_is_there_for_those_who_want_it() -> None:
    assert group_advantages({0: 1.0, 1: 0.0}, divide_by_std=True) == pytest.approx({0: 1.0, 1: -1.0}, abs=1e-5)


def loss(
    ratios: list[float], advantages: list[float], *, num_tokens: int | None = None
) -> tuple[float, list[float], int]:
    """Loss, its gradient by log-probability, and the number clipped."""
    logprobs = torch.tensor(ratios).log().requires_grad_()
    found = clipped_loss(
        logprobs,
        recorded_t=torch.zeros(len(ratios)),
        advantages_t=torch.tensor(advantages),
        clipping=CLIP,
        num_tokens=num_tokens or len(ratios),
    )
    found.loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    return found.loss.item(), logprobs.grad.tolist(), found.num_clipped


def test_on_policy_the_gradient_is_the_advantage_per_token() -> None:
    value, gradient, num_clipped = loss([1.0, 1.0], [0.5, -0.5])
    assert value == pytest.approx(0)
    assert gradient == pytest.approx([-0.25, 0.25])
    assert num_clipped == 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "pushes"),
    [(1.29, 1, True), (1.31, 1, False), (0.5, 1, True), (0.81, -1, True), (0.79, -1, False), (1.5, -1, True)],
)
def test_a_token_is_not_pushed_further_than_the_clip(ratio: float, advantage: float, pushes: bool) -> None:
    _, (gradient,), num_clipped = loss([ratio], [advantage])
    assert gradient == pytest.approx(-ratio * advantage if pushes else 0)
    assert num_clipped == (not pushes)


def test_batches_of_a_step_add_up_to_the_step() -> None:
    """The denominator is the step's, so that packing does not change the objective (case J5)."""
    whole, _, _ = loss([1.1, 0.9, 1.0], [1, -1, 1])
    parts = loss([1.1], [1], num_tokens=3)[0] + loss([0.9, 1.0], [-1, 1], num_tokens=3)[0]
    assert whole == pytest.approx(parts)


def test_logprobs_are_those_of_the_tempered_distribution() -> None:
    """Case D1."""
    logits = torch.tensor([[2.0, 0.0]])
    found = token_logprobs(logits, targets_t=torch.tensor([0]), temperature=0.5)
    assert float(found) == pytest.approx(-math.log(1 + math.exp(-4)), rel=1e-4)


def test_agreement_is_full_for_equal_numbers_and_falls_with_noise() -> None:
    recorded = torch.rand(500, generator=torch.Generator().manual_seed(0)).clamp_min(1e-3).log()
    same = agreement_of(recorded, recorded + 1e-5)
    assert same.correlation > 0.999999
    assert same.max_gap == pytest.approx(1e-5, abs=1e-6)
    assert agreement_of(recorded, recorded.flip(0)).correlation < 0.5


@pytest.mark.parametrize(("other", "correlation"), [(-1.0, 1.0), (-2.0, 0.0)])
def test_probabilities_that_do_not_vary_are_compared_as_they_are(other: float, correlation: float) -> None:
    found = agreement_of(torch.full((4,), -1.0), torch.full((4,), other))
    assert found.correlation == correlation
