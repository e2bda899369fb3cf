"""What a step learns from its groups.

Each group fills its place in the step. It is trained on, or set aside with a reason that stands in
`StepCompleted.skipped`: too stale (judged here, when it is consumed, by the versions that sampled its tokens: case
F15), without signal (all rewards equal), or with arrays that cannot be read. A step of which nothing can be learnt is a
step all the same: its version has the weights of the one before.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_objectives import TrainRow, group_advantages
from rein_tokens import PackedGroup, Row


@dataclass(frozen=True, slots=True)
class Study:
    """One group and what it holds; `arrays` None = they could not be read."""

    event: ev.GroupAssembled
    arrays: PackedGroup | None


@dataclass(slots=True)
class Lesson:
    """A step's work and the figures that follow from its groups alone."""

    rows: list[TrainRow] = field(default_factory=list)
    """To learn from: every advantage differs from 0."""
    silent: list[TrainRow] = field(default_factory=list)
    """Rows with nothing to learn: they serve to compare log-probabilities only."""
    num_trainable: int = 0
    """Training tokens of all groups with signal: the loss's denominator."""
    groups: list[str] = field(default_factory=list)
    skipped: list[ev.SkippedGroup] = field(default_factory=list)
    num_rollouts: int = 0
    num_segments: int = 0
    num_tokens: int = 0
    mean_reward: float = 0.0
    """Over all rewarded rollouts of the step, also of groups set aside."""
    mean_surprisal: float = 0.0
    max_staleness_versions: int = 0


def lesson_of(studies: Sequence[Study], *, spec: ev.RunSpec, step: int, version: int) -> Lesson:
    """The lesson of `step`; `version` is the policy's before it."""
    lesson = Lesson()
    logprobs: list[np.ndarray] = []
    for study in studies:
        failure = _unusable(study, spec=spec, version=version)
        if failure is not None or study.arrays is None:
            lesson.skipped.append(ev.SkippedGroup(group=study.event.group.group, failure=failure))
            continue
        advantages = group_advantages(_rewards(study.event, spec=spec, step=step))
        rows = [_train_row(row, advantages.get(row.member, 0.0)) for row in study.arrays.rows]
        lesson.silent += [row for row in rows if row.advantage == 0.0]
        if not any(advantages.values()):
            failure = _no_signal(study.event)
            lesson.skipped.append(ev.SkippedGroup(group=study.event.group.group, failure=failure))
            continue
        lesson.rows += [row for row in rows if row.advantage != 0.0]
        logprobs += [row.logprobs for row in rows]
        _count(lesson, study.event, rows, version=version)
    rewards = [member.reward for study in studies for member in study.event.members if member.HasField("reward")]
    lesson.mean_reward = fmean(rewards) if rewards else 0.0
    lesson.mean_surprisal = -float(np.concatenate(logprobs).mean()) if logprobs else 0.0
    return lesson


def _count(lesson: Lesson, event: ev.GroupAssembled, rows: Sequence[TrainRow], *, version: int) -> None:
    lesson.groups.append(event.group.group)
    lesson.num_trainable += sum(len(row.sampled_at) for row in rows)
    lesson.num_rollouts += sum(member.HasField("reward") for member in event.members)
    lesson.num_segments += len(rows)
    lesson.num_tokens += sum(len(row.token_ids) for row in rows)
    lesson.max_staleness_versions = max(lesson.max_staleness_versions, version - event.min_version)


def _unusable(study: Study, *, spec: ev.RunSpec, version: int) -> pb.Failure | None:
    behind = version - study.event.min_version
    if behind > spec.max_staleness_versions:
        detail = f"its oldest token is {behind} versions old, the bound is {spec.max_staleness_versions}"
        return pb.Failure(owner=pb.OWNER_OPERATOR, code="staleness.exceeded", detail=detail)
    if study.arrays is None:
        detail = f"blob {study.event.arrays.sha256} is missing or damaged"
        return pb.Failure(owner=pb.OWNER_OPERATOR, code="group.unreadable", detail=detail)
    return None


def _no_signal(event: ev.GroupAssembled) -> pb.Failure:
    rewards = [member.reward for member in event.members if member.HasField("reward")]
    detail = f"all {len(rewards)} rewards are {rewards[0]:g}" if rewards else "it has no rewards"
    return pb.Failure(owner=pb.OWNER_POLICY, code="group.no_signal", detail=detail)


def _rewards(event: ev.GroupAssembled, *, spec: ev.RunSpec, step: int) -> dict[int, float]:
    """Reward by member; dealt out anew inside the group in the control experiment."""
    rewards = {member.identity.member: member.reward for member in event.members if member.HasField("reward")}
    if not spec.shuffle_rewards:
        return rewards
    dealt = list(rewards.values())
    random.Random(f"{spec.seed + step}/{event.group.group}").shuffle(dealt)
    return dict(zip(rewards, dealt, strict=True))


def _train_row(row: Row, advantage: float) -> TrainRow:
    return TrainRow(
        token_ids=row.token_ids.astype(np.int64),
        sampled_at=row.sampled_at.astype(np.int64),
        logprobs=row.logprobs,
        versions=row.versions.astype(np.int64),
        advantage=advantage,
    )


def versions_of(rows: Sequence[TrainRow]) -> Iterator[tuple[int, int]]:
    """Versions that sampled the rows' tokens with their numbers of tokens, the most frequent first."""
    if not rows:
        return
    versions, counts = np.unique(np.concatenate([row.versions for row in rows]), return_counts=True)
    for index in np.argsort(-counts, kind="stable"):
        yield int(versions[index]), int(counts[index])
