"""Where a run stands, folded from its events: what `rein run --follow` and `rein watch` show. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb

FOLLOWED: tuple[type[Message], ...] = (
    ev.RunChanged,
    ev.GroupOpened,
    ev.GroupAssembled,
    ev.StepCompleted,
    ev.RolloutFenced,
    ev.AlertRaised,
    ev.NodeReported,
)

_ENDED = (ev.RUN_STATE_COMPLETED, ev.RUN_STATE_STOPPED, ev.RUN_STATE_FAILED)


@dataclass(slots=True)
class Tally:
    """Rewards of some rollouts."""

    num_rewarded: int = 0
    total: float = 0.0
    num_absent: int = 0

    def add(self, outcome: ev.MemberOutcome) -> None:
        if outcome.HasField("reward"):
            self.num_rewarded += 1
            self.total += outcome.reward
        else:
            self.num_absent += 1

    @property
    def mean(self) -> float | None:
        return self.total / self.num_rewarded if self.num_rewarded else None


@dataclass(slots=True)
class Progress:
    """One run; redelivered events count once."""

    run: str
    spec: ev.RunSpec = field(default_factory=ev.RunSpec)
    state: "ev.RunState.ValueType" = ev.RUN_STATE_UNSPECIFIED
    failure: pb.Failure = field(default_factory=pb.Failure)
    steps: dict[int, ev.StepCompleted] = field(default_factory=dict)
    opened: dict[str, ev.GroupOpened] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    trained: Tally = field(default_factory=Tally)
    evaluated: dict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))
    absent: Counter[str] = field(default_factory=Counter)
    fenced: Counter[str] = field(default_factory=Counter)
    nodes: dict[str, ev.NodeReported] = field(default_factory=dict)
    alerts: list[ev.AlertRaised] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    def apply(self, event: Message) -> Iterator[str]:
        """Take an event in; says what a person would want to hear of it."""
        match event:
            case ev.RunChanged():
                yield from self._run_changed(event)
            case ev.GroupOpened():
                self.opened[event.group.group] = event
            case ev.GroupAssembled() if event.group.group not in self.ended:
                yield from self._group_ended(event)
            case ev.StepCompleted() if event.step not in self.steps:
                self.steps[event.step] = event
                yield self._step_line(event)
            case ev.RolloutFenced():
                self.fenced[event.failure.code] += 1
            case ev.NodeReported():
                self.nodes[event.node] = event
            case ev.AlertRaised():
                self.alerts.append(event)
                yield f"ALERT {event.code}: {event.detail}"
            case _:
                pass

    def _run_changed(self, event: ev.RunChanged) -> Iterator[str]:
        self.spec, self.failure = event.spec, event.failure
        if event.state != self.state:
            self.state = event.state
            why = f": {event.failure.detail or event.failure.code}" if event.failure.code else ""
            yield f"run {self.run} {_state(event.state)}{why}"

    def _group_ended(self, event: ev.GroupAssembled) -> Iterator[str]:
        self.ended.add(event.group.group)
        is_evaluation = event.purpose == pb.PURPOSE_EVAL
        tally = self.evaluated[event.step] if is_evaluation else self.trained
        for outcome in event.members:
            tally.add(outcome)
            if not outcome.HasField("reward"):
                self.absent[outcome.failure.code] += 1
        if event.state == ev.GROUP_STATE_DROPPED:
            yield f"group {event.group.group} dropped: {event.failure.detail or event.failure.code}"
        if is_evaluation and self._is_last_of_evaluation(event.step):
            yield f"evaluation after step {event.step}: pass rate {_rate(tally.mean)} of {tally.num_rewarded}"

    def _is_last_of_evaluation(self, step: int) -> bool:
        groups = [each.group.group for each in self.opened.values() if _evaluates(each, step)]
        expected = self.spec.eval.num_tasks or len(groups)
        return len(groups) >= expected and all(name in self.ended for name in groups)

    def _step_line(self, step: ev.StepCompleted) -> str:
        correlation = f"{step.correlation:.5f}" if step.HasField("correlation") else "none"
        return (
            f"step {step.step}/{self.spec.steps}: reward {step.mean_reward:.3f}, loss {step.loss:+.4f}, "
            f"correlation {correlation}, {step.num_trainable_tokens} tokens, {step.step_s:.1f} s"
        )

    def figures(self) -> dict[str, object]:
        """For programs."""
        return {
            "state": _state(self.state),
            "step": max(self.steps, default=0),
            "steps": self.spec.steps,
            "groups_open": len(set(self.opened) - self.ended),
            "groups_ended": len(self.ended),
            "train_rewarded": self.trained.num_rewarded,
            "train_reward_mean": self.trained.mean,
            "heldout_pass_by_step": {str(step): tally.mean for step, tally in sorted(self.evaluated.items())},
            "absent": dict(self.absent),
            "fenced": dict(self.fenced),
            "nodes": {name: _node(node) for name, node in sorted(self.nodes.items())},
            "alerts": [alert.code for alert in self.alerts],
            "failure": self.failure.code,
        }

    def line(self) -> str:
        """For a person, in one line."""
        held_out = ", ".join(f"{step}: {_rate(tally.mean)}" for step, tally in sorted(self.evaluated.items()))
        return (
            f"run {self.run} {_state(self.state)}: step {max(self.steps, default=0)}/{self.spec.steps}, "
            f"{self.trained.num_rewarded} training rollouts rewarded, {self.absent.total()} absent; "
            f"held-out pass rate by step: {held_out or 'not measured'}"
        )


def _evaluates(group: ev.GroupOpened, step: int) -> bool:
    return group.purpose == pb.PURPOSE_EVAL and group.step == step


def _state(state: "ev.RunState.ValueType") -> str:
    return ev.RunState.Name(state).removeprefix("RUN_STATE_")


def _rate(mean: float | None) -> str:
    return "none" if mean is None else f"{mean:.3f}"


def _node(node: ev.NodeReported) -> Mapping[str, object]:
    state = ev.NodeState.Name(node.state).removeprefix("NODE_STATE_")
    return {"state": state, "version": node.version, "running": node.num_running, "waiting": node.num_waiting}
