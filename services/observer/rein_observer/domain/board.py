"""The board of one run: everything its page shows, folded from the log in any order.

A board holds aggregates and one small entry per rollout still open; events of rollouts and groups are counted once
whatever their redelivery. It takes no decision (see `alerts`) and knows nothing of windows of time (see `windows`).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import AttemptId, attempt_id

STAGES = ("requested", "running", "finished", "graded")


@dataclass(slots=True)
class Evaluation:
    """Held-out rewards after one step, by task."""

    rewards: dict[str, list[float]] = field(default_factory=dict)
    num_absent: int = 0

    @property
    def num_rollouts(self) -> int:
        return sum(map(len, self.rewards.values()))

    @property
    def pass_rate(self) -> float | None:
        """Mean over tasks of the task's mean reward; None = nothing measured."""
        means = [sum(values) / len(values) for values in self.rewards.values() if values]
        return sum(means) / len(means) if means else None


@dataclass(slots=True)
class RunBoard:
    """What is known of one run."""

    run: str
    changed: ev.RunChanged = field(default_factory=ev.RunChanged)
    version: int = 0
    steps: dict[int, ev.StepCompleted] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    nodes: dict[str, ev.NodeReported] = field(default_factory=dict)
    alerts: dict[str, ev.AlertRaised] = field(default_factory=dict)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Failed attempts by (owner, code)."""
    findings: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """Rollouts ended: rewarded, absent; groups ended: ready, dropped, evaluated; retried attempts."""
    num_turns: int = 0
    num_forks: int = 0
    num_sampled_tokens: int = 0
    group_rewards: dict[int, list[float]] = field(default_factory=dict)
    """Training rewards by step, in order of the groups' ends."""
    _stages: dict[AttemptId, int] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _seen: set[tuple[str, AttemptId]] = field(default_factory=set)

    def apply(self, message: Message) -> None:
        """Record one event of this run."""
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)

    def in_flight(self) -> dict[str, int]:
        """Attempts of open rollouts, by the stage they have reached."""
        counts = Counter(self._stages.values())
        return {name: counts[index] for index, name in enumerate(STAGES)}

    def fork_rate(self) -> float | None:
        """Turns that opened a segment although their session had one; None = no turn yet."""
        return self.num_forks / self.num_turns if self.num_turns else None

    def _reach(self, identity: pb.Identity, stage: int) -> None:
        attempt = attempt_id(identity)
        if identity.group not in self._ended:
            self._stages[attempt] = max(stage, self._stages.get(attempt, 0))

    def _is_first(self, kind: str, identity: pb.Identity) -> bool:
        key = (kind, attempt_id(identity))
        if key in self._seen or identity.group in self._ended:
            return False
        self._seen.add(key)
        return True

    def on_run(self, message: ev.RunChanged) -> None:
        if message.state >= self.changed.state:
            self.changed = message

    def on_requested(self, message: ev.RolloutRequested) -> None:
        self._reach(message.identity, 0)
        if message.identity.attempt > 1 and self._is_first("requested", message.identity):
            self.outcomes["retried"] += 1

    def on_leased(self, message: ev.RolloutLeased) -> None:
        self._reach(message.identity, 1)

    def on_finished(self, message: ev.RolloutFinished) -> None:
        self._reach(message.identity, 2)

    def on_graded(self, message: ev.RolloutGraded) -> None:
        self._reach(message.identity, 3)
        if message.HasField("failure") and self._is_first("graded", message.identity):
            self.failures[(owner_name(message.failure.owner), message.failure.code)] += 1

    def on_fenced(self, message: ev.RolloutFenced) -> None:
        self._stages.pop(attempt_id(message.identity), None)
        if message.failure.code in ("lease.lost", "group.deadline") and self._is_first("fenced", message.identity):
            self.failures[(owner_name(message.failure.owner), message.failure.code)] += 1

    def on_turn(self, message: ev.TurnCaptured) -> None:
        if not self._is_first(f"turn {message.turn}", message.identity):
            return
        self.num_turns += 1
        self.num_sampled_tokens += sum(span.end - span.start for span in message.versions)

    def on_finding(self, message: ev.FindingRecorded) -> None:
        self.findings[message.code] += 1
        self.num_forks += message.code == "session.forked"

    def on_assembled(self, message: ev.GroupAssembled) -> None:
        group = message.group.group
        if group in self._ended:
            return
        self._ended.add(group)
        for attempt in [a for a in self._stages if a.group == group]:
            del self._stages[attempt]
        self._seen = {(kind, attempt) for kind, attempt in self._seen if attempt.group != group}
        rewards = [member.reward for member in message.members if member.HasField("reward")]
        num_absent = len(message.members) - len(rewards)
        self.outcomes["rewarded"] += len(rewards)
        self.outcomes["absent"] += num_absent
        self.outcomes[ev.GroupState.Name(message.state).removeprefix("GROUP_STATE_").lower()] += 1
        if message.purpose == pb.PURPOSE_EVAL:
            evaluation = self.evaluations.setdefault(message.step, Evaluation())
            evaluation.rewards.setdefault(message.group.task, []).extend(rewards)
            evaluation.num_absent += num_absent
        else:
            self.group_rewards.setdefault(message.step, []).extend(rewards)

    def on_policy(self, message: ev.PolicyPublished) -> None:
        self.version = max(self.version, message.version)

    def on_step(self, message: ev.StepCompleted) -> None:
        self.steps[message.step] = message

    def on_node(self, message: ev.NodeReported) -> None:
        self.nodes[message.node] = message

    def on_alert(self, message: ev.AlertRaised) -> None:
        self.alerts.setdefault(message.code, message)


_HANDLERS: dict[type[Message], Callable[..., None]] = {
    ev.RunChanged: RunBoard.on_run,
    ev.RolloutRequested: RunBoard.on_requested,
    ev.RolloutLeased: RunBoard.on_leased,
    ev.RolloutFinished: RunBoard.on_finished,
    ev.RolloutGraded: RunBoard.on_graded,
    ev.RolloutFenced: RunBoard.on_fenced,
    ev.TurnCaptured: RunBoard.on_turn,
    ev.FindingRecorded: RunBoard.on_finding,
    ev.GroupAssembled: RunBoard.on_assembled,
    ev.PolicyPublished: RunBoard.on_policy,
    ev.StepCompleted: RunBoard.on_step,
    ev.NodeReported: RunBoard.on_node,
    ev.AlertRaised: RunBoard.on_alert,
}


class Boards:
    """All runs on these topics, and what belongs to none."""

    def __init__(self) -> None:
        self.runs: dict[str, RunBoard] = {}
        self.dead_letters: Counter[tuple[str, str]] = Counter()
        """Dead letters by (topic, code)."""
        self.revision = 0
        """Grows with every event, so that a page knows when to redraw."""

    def apply(self, message: Message) -> None:
        self.revision += 1
        if isinstance(message, ev.DeadLetterRecorded):
            self.dead_letters[(message.topic, message.failure.code)] += 1
            return
        run = run_of(message)
        if run:
            self.runs.setdefault(run, RunBoard(run)).apply(message)


def run_of(message: Message) -> str:
    """The run an event belongs to; "" = none."""
    fields = message.DESCRIPTOR.fields_by_name
    if "identity" in fields:
        return str(message.identity.run)  # type: ignore[attr-defined]
    if "run" in fields:
        return str(message.run)  # type: ignore[attr-defined]
    return str(message.group.run) if "group" in fields else ""  # type: ignore[attr-defined]


def owner_name(owner: "pb.Owner.ValueType") -> str:
    return pb.Owner.Name(owner).removeprefix("OWNER_").lower()
