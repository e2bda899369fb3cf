"""One group as a fold over its events, read in any order and any number of times.

A member settles once: by the first attempt that has a grade with a reward, its `RolloutFinished` and all its turns,
unless that attempt was fenced before its grade was read; or without a reward, by a final fence. A grade without a
reward settles nothing: the dispatcher tries again or fences finally. What an unsettled member may still need is held;
what can no longer count is dropped at once. The fold decides nothing about the group's state (see `ending`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_tokens import Turn, turn_of

#: A turn in memory; one whose arrays lie in the blob store stays an event until its member has settled.
HeldTurn = Turn | ev.TurnCaptured

AboutAttempt = ev.RolloutFinished | ev.TurnCaptured | ev.RolloutGraded
Event = ev.GroupOpened | ev.RolloutFenced | AboutAttempt


class Ignored(Enum):
    """Why a record changed nothing."""

    DUPLICATE = "duplicate"
    FENCED = "fenced"
    """Of an attempt that was fenced before."""
    SETTLED = "settled"
    """Of a member that has its end."""
    ENDED = "ended"
    """Of a group that has its end."""
    UNMEASURED = "unmeasured"
    """A grade without a reward."""
    STRANGER = "stranger"
    """Of a member the group does not have."""


@dataclass(slots=True)
class Attempt:
    """What is known of one attempt that may still count."""

    turns: dict[int, HeldTurn] = field(default_factory=dict)
    finished: ev.RolloutFinished | None = None
    grade: ev.RolloutGraded | None = None
    """With a reward, and read before any fence of this attempt."""

    @property
    def is_whole(self) -> bool:
        if self.grade is None or self.finished is None:
            return False
        return all(index in self.turns for index in range(self.grade.num_turns))


@dataclass(frozen=True, slots=True)
class Settled:
    """A member's end."""

    attempt: int
    reward: float | None
    failure: pb.Failure
    """Why there is no reward, or the policy's own failure behind the reward."""
    harness: str = ""
    turns: Mapping[int, HeldTurn] = field(default_factory=dict)
    """By index from 0, without gaps."""


@dataclass(slots=True)
class Member:
    """One rollout."""

    attempts: dict[int, Attempt] = field(default_factory=dict)
    fenced_attempt: int = 0
    """Newest attempt that was fenced; those before it are over too."""
    settled: Settled | None = None

    def apply(self, event: ev.RolloutFenced | AboutAttempt) -> Ignored | None:
        if self.settled is not None:
            return Ignored.SETTLED
        if isinstance(event, ev.RolloutFenced):
            return self._fence(event)
        number = event.identity.attempt
        if number not in self.attempts:
            if number <= self.fenced_attempt:
                return Ignored.FENCED
            self.attempts[number] = Attempt()
        ignored = _note(self.attempts[number], event)
        if self.attempts[number].is_whole:
            self._settle(number)
        return ignored

    def _fence(self, event: ev.RolloutFenced) -> Ignored | None:
        number = event.identity.attempt
        if event.is_final:
            self.settled = Settled(attempt=number, reward=None, failure=event.failure)
            self.attempts.clear()
            return None
        if number <= self.fenced_attempt:
            return Ignored.DUPLICATE
        self.fenced_attempt = number
        self.attempts = {
            other: attempt for other, attempt in self.attempts.items() if other > number or attempt.grade is not None
        }
        return None

    def _settle(self, number: int) -> None:
        attempt = self.attempts[number]
        assert attempt.grade is not None
        assert attempt.finished is not None
        self.settled = Settled(
            attempt=number,
            reward=attempt.grade.reward,
            failure=attempt.grade.failure,
            harness=attempt.finished.harness,
            turns={index: attempt.turns[index] for index in range(attempt.grade.num_turns)},
        )
        self.attempts.clear()


@dataclass(slots=True)
class Group:
    """All that was read of one group that has not ended."""

    name: str
    opened: ev.GroupOpened | None = None
    members: dict[int, Member] = field(default_factory=dict)

    def apply(self, event: Event) -> Ignored | None:
        """Record one event of this group; the reason, if it changed nothing."""
        if isinstance(event, ev.GroupOpened):
            if self.opened is not None:
                return Ignored.DUPLICATE
            self.opened = event
            self.members = {index: member for index, member in self.members.items() if index < event.size}
            return None
        index = event.identity.member
        if self.opened is not None and index >= self.opened.size:
            return Ignored.STRANGER
        return self.members.setdefault(index, Member()).apply(event)

    @property
    def is_settled(self) -> bool:
        """Whether every member has its end."""
        return self.opened is not None and len(self.settled) == self.opened.size

    @property
    def settled(self) -> dict[int, Settled]:
        """Ends so far, by member."""
        return {index: end for index, member in sorted(self.members.items()) if (end := member.settled)}


def _note(attempt: Attempt, event: AboutAttempt) -> Ignored | None:
    match event:
        case ev.TurnCaptured():
            if event.turn in attempt.turns:
                return Ignored.DUPLICATE
            attempt.turns[event.turn] = event if event.HasField("arrays") else turn_of(event)
        case ev.RolloutFinished():
            if attempt.finished is not None:
                return Ignored.DUPLICATE
            attempt.finished = event
        case ev.RolloutGraded():
            if not event.HasField("reward"):
                return Ignored.UNMEASURED
            if attempt.grade is not None:
                return Ignored.DUPLICATE
            attempt.grade = event
    return None
