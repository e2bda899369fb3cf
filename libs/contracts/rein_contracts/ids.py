"""Names of groups, rollouts and attempts, as they stand in keys, labels and paths.

group    <run>.g<number> (training) or <run>.e<number> (evaluation)
rollout  <group>/<member>
attempt  <group>/<member>#<attempt>
"""

import re
from dataclasses import dataclass

from rein.v1 import identity_pb2 as pb

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True)
class RolloutId:
    """A rollout, whatever its attempts."""

    group: str
    member: int

    def __str__(self) -> str:
        return f"{self.group}/{self.member}"


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One attempt at a rollout; `attempt` counts from 1."""

    group: str
    member: int
    attempt: int

    @property
    def rollout(self) -> RolloutId:
        return RolloutId(self.group, self.member)

    def __str__(self) -> str:
        return f"{self.group}/{self.member}#{self.attempt}"


def rollout_id(identity: pb.Identity) -> RolloutId:
    return RolloutId(identity.group, identity.member)


def attempt_id(identity: pb.Identity) -> AttemptId:
    return AttemptId(identity.group, identity.member, identity.attempt)


def group_id(run: str, *, purpose: "pb.Purpose.ValueType", number: int) -> str:
    """Name of the run's `number`-th group of that purpose."""
    letter = "e" if purpose == pb.PURPOSE_EVAL else "g"
    return f"{run}.{letter}{number}"


def run_of_group(group: str) -> str:
    return group.rsplit(".", 1)[0]


def is_run_name(name: str) -> bool:
    return RUN_NAME.fullmatch(name) is not None
