"""What a harness asked of sampling that the run decides otherwise. The run's parameters always win."""

from collections.abc import Mapping
from typing import Any

from rein.v1 import identity_pb2 as pb

#: Values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1, None),
    "top_k": (-1, 0, None),
    "min_p": (0, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "repetition_penalty": (1, None),
    "logit_bias": ({}, None),
    "stop": ([], None),
    "stop_sequences": ([], None),
    "tool_choice": ("auto", {"type": "auto"}, None),
    "response_format": ({"type": "text"}, None),
    "logprobs": (False, None),
    "top_logprobs": (0, None),
}


def overridden(asked: Mapping[str, Any], *, sampling: pb.Sampling) -> list[str]:
    """One line per setting that is not honoured, with the value asked for."""
    return [f"{name}={value!r}"[:200] for name, value in asked.items() if not _is_met(name, value, sampling)]


def _is_met(name: str, value: Any, sampling: pb.Sampling) -> bool:
    if name == "temperature":
        return value is None or (isinstance(value, int | float) and abs(value - sampling.temperature) < 1e-6)
    return value in _NEUTRAL.get(name, (None,))
