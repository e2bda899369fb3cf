"""What an engine reported is taken as it is: anything missing or odd makes the turn untrainable, by name."""

from dataclasses import replace

import pytest

from rein_gateway.domain.generation import Generation

GOOD = Generation(
    token_ids=(5, 6, 7),
    logprobs=(-0.1, -0.2, -0.3),
    logprob_ids=(5, 6, 7),
    versions=((1, 0, 2), (2, 2, 3)),
    finish_reason="stop",
    num_prompt_tokens=4,
    num_sampled_tokens=3,
)


def test_a_whole_report_can_be_trained_on_and_keeps_its_spans() -> None:
    assert GOOD.fault(num_prompt_tokens=4) is None
    assert [(span.version, span.start, span.end) for span in GOOD.spans()] == [(1, 0, 2), (2, 2, 3)]


@pytest.mark.parametrize(
    "spoilt",
    [
        replace(GOOD, token_ids=()),
        replace(GOOD, logprobs=(-0.1, -0.2)),
        replace(GOOD, logprob_ids=(5, 6, 8)),
        replace(GOOD, logprobs=(-0.1, float("nan"), -0.3)),
        replace(GOOD, versions=()),
        replace(GOOD, versions=((0, 0, 3),)),
        replace(GOOD, versions=((1, 0, 2),)),
        replace(GOOD, num_prompt_tokens=5),
        replace(GOOD, num_sampled_tokens=2),
    ],
)
def test_what_is_missing_or_odd_is_a_fault(spoilt: Generation) -> None:
    assert spoilt.fault(num_prompt_tokens=4) is not None
