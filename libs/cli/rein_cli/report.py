"""What a run achieved, from its events alone: held-out gain with its interval, agreement, counts.

Pure: events in, a JSON-ready summary out. The interval is a paired bootstrap over tasks (Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993, percentile method): tasks are resampled, each with its rewards before and after,
since rollouts of one task are not independent.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb

NUM_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Gain:
    """Held-out pass rates before and after, over the tasks measured both times."""

    before: float
    after: float
    ci95: tuple[float, float]
    """95 % interval of after - before."""
    num_tasks: int


def heldout_gain(
    before: Mapping[str, Sequence[float]], *, after: Mapping[str, Sequence[float]], seed: int = 0
) -> Gain | None:
    """Gain over the tasks with at least one reward in both; None = there is none. Rewards are keyed by task."""
    tasks = sorted(task for task in before if before[task] and after.get(task))
    if not tasks:
        return None
    old = np.array([np.mean(before[task]) for task in tasks])
    new = np.array([np.mean(after[task]) for task in tasks])
    picks = np.random.default_rng(seed).integers(0, len(tasks), size=(NUM_RESAMPLES, len(tasks)))
    low, high = np.quantile((new - old)[picks].mean(axis=1), [0.025, 0.975])
    return Gain(float(old.mean()), float(new.mean()), (float(low), float(high)), len(tasks))


def evaluations(events: Iterable[Message]) -> dict[int, dict[str, list[float]]]:
    """Held-out rewards by step and task; each group counts once."""
    rewards: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    seen: set[str] = set()
    for event in events:
        if not isinstance(event, ev.GroupAssembled) or event.purpose != pb.PURPOSE_EVAL:
            continue
        if event.group.group not in seen:
            seen.add(event.group.group)
            values = [member.reward for member in event.members if member.HasField("reward")]
            rewards[event.step][event.group.task].extend(values)
    return {step: dict(by_task) for step, by_task in sorted(rewards.items())}


def summarise(events: Sequence[Message]) -> dict[str, object]:
    """Summary of the run whose events these are."""
    by_step = evaluations(events)
    first, last = (min(by_step), max(by_step)) if by_step else (0, 0)
    gain = heldout_gain(by_step[first], after=by_step[last]) if first != last else None
    steps = {event.step: event for event in events if isinstance(event, ev.StepCompleted)}
    correlations = [step.correlation for step in steps.values() if step.HasField("correlation")]
    return {
        "heldout_pass_before": gain.before if gain else None,
        "heldout_pass_after": gain.after if gain else None,
        "heldout_gain_ci95": list(gain.ci95) if gain else None,
        "heldout_tasks": gain.num_tasks if gain else 0,
        "heldout_pass_by_step": {str(step): _pass_rate(by_task) for step, by_task in by_step.items()},
        "steps": len(steps),
        "train_reward_by_step": [round(steps[step].mean_reward, 4) for step in sorted(steps)],
        "correlation_min": min(correlations, default=None),
        "logprob_gap_max": max((step.max_logprob_gap for step in steps.values()), default=None),
        "staleness_max_versions": max((step.max_staleness_versions for step in steps.values()), default=0),
        "harnesses": sorted({event.harness for event in events if isinstance(event, ev.RolloutFinished)}),
        "wall_s": _wall_s(events),
    }


def _pass_rate(by_task: Mapping[str, Sequence[float]]) -> float | None:
    means = [float(np.mean(values)) for values in by_task.values() if values]
    return float(np.mean(means)) if means else None


def _wall_s(events: Sequence[Message]) -> float | None:
    """From the run's start to its end; None = it has not ended."""
    changes = [event for event in events if isinstance(event, ev.RunChanged)]
    times_s = [change.at.ToNanoseconds() / 1e9 for change in changes]
    has_ended = any(change.state > ev.RUN_STATE_STOPPING for change in changes)
    return round(max(times_s) - min(times_s), 1) if has_ended else None
