"""Comparing what the engine says about the probe's tokens with what the learner computed."""

import math
from collections.abc import Sequence


def gap_nats(ours: Sequence[float], learners: Sequence[float]) -> float:
    """Mean absolute difference; infinite when anything is missing or not a number, so that doubt never passes."""
    if not learners or len(ours) != len(learners):
        return math.inf
    total = math.fsum(abs(a - b) for a, b in zip(ours, learners, strict=True))
    return total / len(learners) if math.isfinite(total) else math.inf


def agrees(gap: float, *, tolerance: float) -> bool:
    return gap <= tolerance
