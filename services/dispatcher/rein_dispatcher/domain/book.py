"""The books of one run: a fold over the log's events, in any order and however often they come.

`apply` records what the log says; it decides nothing (see `schedule`). Groups may be mentioned before their
`GroupOpened` is read, since topics are read side by side. Times are monotonic seconds at which an event was read, so a
restart gives every lease a fresh term instead of trusting clocks of other machines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb


@dataclass(slots=True)
class MemberBook:
    """One rollout of an open group."""

    attempt: int = 0
    """Newest attempt requested; 0 = none yet."""
    fenced_attempt: int = 0
    """Newest attempt that was fenced."""
    fenced_at_s: float = 0.0
    is_given_up: bool = False
    is_graded: bool = False
    """The newest attempt has a grade with a reward."""
    absent: pb.Failure | None = None
    """Why the newest attempt has no reward."""
    leased_until_s: float | None = None
    """None = not leased: waiting for a runner, or already finished."""


@dataclass(slots=True)
class GroupBook:
    """One group that has not ended."""

    opened: ev.GroupOpened | None = None
    opened_at_s: float = 0.0
    members: dict[int, MemberBook] = field(default_factory=dict)

    def member(self, index: int) -> MemberBook:
        return self.members.setdefault(index, MemberBook())


@dataclass(slots=True)
class Counts:
    """Rollouts of the run so far."""

    requested: int = 0
    rewarded: int = 0
    absent: int = 0
    retried: int = 0


class RunBook:
    """Everything the log says about one run."""

    def __init__(self, run: ev.RunChanged) -> None:
        self.run = run
        self.published_version = 0
        self.published_step = 0
        self.node_versions: dict[str, int] = {}
        self.groups: dict[str, GroupBook] = {}
        self.ended: set[str] = set()
        self.opened: set[str] = set()
        self.num_train_opened = 0
        self.num_train_groups_by_step: dict[int, int] = {}
        """Training groups opened and not dropped, by step."""
        self.num_dropped_in_a_row = 0
        """Training groups dropped since the last one that ended with training data."""
        self.last_drop = pb.Failure()
        self.eval_groups: dict[int, dict[str, bool]] = {}
        """Evaluation groups by the step they evaluate: group -> has ended."""
        self.stop_alert: ev.AlertRaised | None = None
        self.counts = Counts()
        self._settled_before_opening: dict[str, ev.GroupState.ValueType] = {}
        self._handlers: dict[type[Message], Callable[..., None]] = {
            ev.RunChanged: self._run_changed,
            ev.GroupOpened: self._group_opened,
            ev.RolloutRequested: self._requested,
            ev.RolloutFenced: self._fenced,
            ev.RolloutLeased: self._leased,
            ev.RolloutFinished: self._finished,
            ev.RolloutGraded: self._graded,
            ev.GroupAssembled: self._assembled,
            ev.PolicyPublished: self._policy,
            ev.NodeReported: self._node,
            ev.AlertRaised: self._alert,
        }

    @property
    def spec(self) -> ev.RunSpec:
        return self.run.spec

    @property
    def confirmed_version(self) -> int:
        """Newest version a ready node serves; 0 = none yet. Never ahead of what the learner published."""
        return min(max(self.node_versions.values(), default=0), self.published_version)

    def apply(self, message: Message, *, now_s: float) -> None:
        """Record one event of this run; `now_s` is monotonic."""
        self._handlers[type(message)](message, now_s)

    def open_groups(self) -> dict[str, GroupBook]:
        """Groups that were opened and have not ended."""
        return {name: group for name, group in self.groups.items() if group.opened is not None}

    def _group(self, name: str) -> GroupBook | None:
        return None if name in self.ended else self.groups.setdefault(name, GroupBook())

    def _member(self, identity: pb.Identity) -> MemberBook | None:
        group = self._group(identity.group)
        return None if group is None else group.member(identity.member)

    def _current(self, identity: pb.Identity) -> MemberBook | None:
        """The member, if `identity` names its newest attempt and that one is not fenced."""
        member = self._member(identity)
        if member is None or identity.attempt < member.attempt or identity.attempt <= member.fenced_attempt:
            return None
        return member

    def _run_changed(self, message: ev.RunChanged, _now_s: float) -> None:
        if _PRECEDENCE[message.state] >= _PRECEDENCE[self.run.state]:
            self.run = message

    def _group_opened(self, message: ev.GroupOpened, now_s: float) -> None:
        name = message.group.group
        if name in self.opened:
            return
        self.opened.add(name)
        self.counts.requested += message.size
        state = self._settled_before_opening.pop(name, None)
        if message.purpose == pb.PURPOSE_EVAL:
            self.eval_groups.setdefault(message.step, {})[name] = state is not None
        else:
            self.num_train_opened += 1
            counted = self.num_train_groups_by_step.get(message.step, 0)
            self.num_train_groups_by_step[message.step] = counted + (state != ev.GROUP_STATE_DROPPED)
        group = self._group(name)
        if group is not None:
            group.opened, group.opened_at_s = message, now_s

    def _requested(self, message: ev.RolloutRequested, _now_s: float) -> None:
        member = self._member(message.identity)
        if member is None or message.identity.attempt <= member.attempt:
            return
        self.counts.retried += message.identity.attempt > 1
        member.attempt = message.identity.attempt
        member.leased_until_s, member.absent, member.is_graded = None, None, False

    def _fenced(self, message: ev.RolloutFenced, now_s: float) -> None:
        member = self._member(message.identity)
        if member is None:
            return
        member.is_given_up |= message.is_final
        if message.identity.attempt > member.fenced_attempt:
            member.fenced_attempt, member.fenced_at_s = message.identity.attempt, now_s

    def _leased(self, message: ev.RolloutLeased, now_s: float) -> None:
        member = self._current(message.identity)
        if member is None or member.is_graded or member.absent is not None:
            return
        is_held = message.state != ev.LEASE_STATE_RELEASED
        member.leased_until_s = now_s + message.lease_s if is_held else None

    def _finished(self, message: ev.RolloutFinished, _now_s: float) -> None:
        member = self._current(message.identity)
        if member is not None:
            member.leased_until_s = None

    def _graded(self, message: ev.RolloutGraded, _now_s: float) -> None:
        member = self._current(message.identity)
        if member is None:
            return
        member.leased_until_s = None
        if message.HasField("reward"):
            member.is_graded, member.absent = True, None
        elif not member.is_graded:
            member.absent = message.failure

    def _assembled(self, message: ev.GroupAssembled, _now_s: float) -> None:
        name = message.group.group
        if name in self.ended:
            return
        self.ended.add(name)
        self.groups.pop(name, None)
        num_rewarded = sum(member.HasField("reward") for member in message.members)
        self.counts.rewarded += num_rewarded
        self.counts.absent += len(message.members) - num_rewarded
        self._note_drop(message)
        if name not in self.opened:
            self._settled_before_opening[name] = message.state
        elif message.purpose == pb.PURPOSE_EVAL:
            self.eval_groups[message.step][name] = True
        elif message.state == ev.GROUP_STATE_DROPPED:
            self.num_train_groups_by_step[message.step] -= 1

    def _note_drop(self, message: ev.GroupAssembled) -> None:
        if message.state == ev.GROUP_STATE_DROPPED:
            self.num_dropped_in_a_row += 1
            self.last_drop = message.failure
        elif message.state == ev.GROUP_STATE_READY:
            self.num_dropped_in_a_row = 0

    def _policy(self, message: ev.PolicyPublished, _now_s: float) -> None:
        if message.version > self.published_version:
            self.published_version, self.published_step = message.version, message.step

    def _node(self, message: ev.NodeReported, _now_s: float) -> None:
        if message.run == self.spec.name and message.state == ev.NODE_STATE_READY:
            self.node_versions[message.node] = message.version
        else:
            self.node_versions.pop(message.node, None)

    def _alert(self, message: ev.AlertRaised, _now_s: float) -> None:
        if message.severity == ev.SEVERITY_STOP and self.stop_alert is None:
            self.stop_alert = message


#: A run only moves forward, whatever order its events are read in.
_PRECEDENCE: dict["ev.RunState.ValueType", int] = {
    ev.RUN_STATE_UNSPECIFIED: 0,
    ev.RUN_STATE_RUNNING: 1,
    ev.RUN_STATE_STOPPING: 2,
    ev.RUN_STATE_COMPLETED: 3,
    ev.RUN_STATE_STOPPED: 3,
    ev.RUN_STATE_FAILED: 3,
}
