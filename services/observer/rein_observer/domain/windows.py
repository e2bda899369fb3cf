"""Figures of one run in one window of time: a JSON-ready value that events are added to.

Kept small on purpose, since the stream engine writes the whole value to its changelog at each addition.
"""

from typing import TypedDict

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein_observer.domain.board import owner_name


class Window(TypedDict):
    """Sums over the window; means are taken when it is shown."""

    rollouts: int
    rewards: float
    turns: int
    sampled_tokens: int
    absent: int
    failures: dict[str, int]
    """Failed attempts by owner."""
    steps: int
    correlation_min: float | None
    staleness_max: int
    findings: int


def empty() -> Window:
    return Window(
        rollouts=0,
        rewards=0.0,
        turns=0,
        sampled_tokens=0,
        absent=0,
        failures={},
        steps=0,
        correlation_min=None,
        staleness_max=0,
        findings=0,
    )


def add(window: Window, message: Message) -> Window:
    """The window with `message` counted in; a new value, the old one is untouched."""
    new = Window(**{**window, "failures": dict(window["failures"])})
    if isinstance(message, ev.GroupAssembled):
        _add_group(new, message)
    elif isinstance(message, ev.RolloutGraded) and message.HasField("failure"):
        owner = owner_name(message.failure.owner)
        new["failures"][owner] = new["failures"].get(owner, 0) + 1
    elif isinstance(message, ev.StepCompleted):
        new["steps"] += 1
        new["staleness_max"] = max(new["staleness_max"], message.max_staleness_versions)
        if message.HasField("correlation"):
            known = new["correlation_min"]
            new["correlation_min"] = message.correlation if known is None else min(known, message.correlation)
    elif isinstance(message, ev.FindingRecorded):
        new["findings"] += 1
    return new


def _add_group(window: Window, message: ev.GroupAssembled) -> None:
    for member in message.members:
        if member.HasField("reward"):
            window["rollouts"] += 1
            window["rewards"] += member.reward
            window["turns"] += member.num_turns
            window["sampled_tokens"] += member.num_sampled_tokens
        else:
            window["absent"] += 1
