"""What a settled group ends as: its one terminal event and, when it may be trained on, the bytes of its arrays.

READY needs a training group with at least `min_size` rewards and one trainable token; an evaluation group is
EVALUATED whatever it has; everything else is DROPPED with a named reason. A reward counts once per rollout whatever
its rows (case J1), also without any row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_assembler.domain.group import Group, Settled
from rein_tokens import Segmented, Turn, pack, segments_of

#: Characters of a member's failure that are kept in the group's event.
DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class Ending:
    """A group's end."""

    event: ev.GroupAssembled
    """Without `arrays` and `at`."""
    arrays: bytes
    """Packed rows; empty unless READY."""
    flaws: Mapping[str, int]
    """Turns of rewarded members that do not train, by reason."""


def ending_of(group: Group, *, turns: Mapping[int, Mapping[int, Turn]]) -> Ending:
    """The end of a settled group; `turns` by member and index, of every member that has a reward."""
    assert group.opened is not None
    segmented = {member: segments_of(turns[member]) for member in sorted(turns)}
    outcomes = [
        _outcome(group.opened, member=member, settled=settled, turns=turns, segmented=segmented)
        for member, settled in group.settled.items()
    ]
    flaws = Counter(flaw.code for each in segmented.values() for flaw in each.flaws.values())
    event = ev.GroupAssembled(
        group=group.opened.group, purpose=group.opened.purpose, members=outcomes, step=group.opened.step
    )
    failure = _failure(group.opened, outcomes=outcomes, flaws=flaws)
    if group.opened.purpose == pb.PURPOSE_EVAL:
        event.state = ev.GROUP_STATE_EVALUATED
    elif failure is not None:
        event.state = ev.GROUP_STATE_DROPPED
        event.failure.CopyFrom(failure)
    else:
        event.state = ev.GROUP_STATE_READY
    _note_versions(event, segmented.values())
    is_ready = event.state == ev.GROUP_STATE_READY
    arrays = pack({member: each.segments for member, each in segmented.items()}) if is_ready else b""
    return Ending(event, arrays, flaws)


def _outcome(
    opened: ev.GroupOpened,
    *,
    member: int,
    settled: Settled,
    turns: Mapping[int, Mapping[int, Turn]],
    segmented: Mapping[int, Segmented],
) -> ev.MemberOutcome:
    identity = pb.Identity()
    identity.CopyFrom(opened.group)
    identity.member, identity.attempt = member, settled.attempt
    outcome = ev.MemberOutcome(identity=identity, harness=settled.harness)
    if settled.failure.code:
        outcome.failure.CopyFrom(settled.failure)
        outcome.failure.detail = settled.failure.detail[:DETAIL_CHARS]
    if settled.reward is None:
        return outcome
    outcome.reward = settled.reward
    outcome.num_turns = len(turns[member])
    outcome.num_segments = len(segmented[member].segments)
    outcome.num_prompt_tokens = sum(len(turn.prompt_ids) for turn in turns[member].values())
    outcome.num_sampled_tokens = sum(len(turn.sampled_ids) for turn in turns[member].values())
    outcome.num_trainable_tokens = sum(segment.num_trainable for segment in segmented[member].segments)
    return outcome


def _failure(opened: ev.GroupOpened, *, outcomes: Iterable[ev.MemberOutcome], flaws: Counter[str]) -> pb.Failure | None:
    """Why a training group cannot be trained on."""
    rewarded = [outcome for outcome in outcomes if outcome.HasField("reward")]
    absent = [outcome.failure for outcome in outcomes if not outcome.HasField("reward")]
    if len(rewarded) < opened.min_size:
        most = _most_common(absent)
        detail = f"{len(rewarded)} of {opened.size} rewards, {opened.min_size} are needed; {most.code}: {most.detail}"
        return pb.Failure(owner=most.owner, code="group.too_few_rewards", detail=detail)
    if any(outcome.num_trainable_tokens for outcome in rewarded):
        return None
    if not any(outcome.num_turns for outcome in rewarded):
        detail = f"none of {len(rewarded)} rewarded rollouts called the model"
        return pb.Failure(owner=pb.OWNER_HARNESS, code="group.no_trainable_tokens", detail=detail)
    reasons = ", ".join(f"{code} {number}x" for code, number in flaws.most_common(3))
    detail = f"{len(rewarded)} rewarded rollouts have no trainable token; turns set aside: {reasons}"
    return pb.Failure(owner=pb.OWNER_INFERENCE, code="group.no_trainable_tokens", detail=detail)


def _most_common(failures: list[pb.Failure]) -> pb.Failure:
    if not failures:
        return pb.Failure(owner=pb.OWNER_OPERATOR, code="group.too_small", detail="the group was opened too small")
    (code, _), *_ = Counter(failure.code for failure in failures).most_common(1)
    return next(failure for failure in failures if failure.code == code)


def _note_versions(event: ev.GroupAssembled, segmented: Iterable[Segmented]) -> None:
    versions = [segment.versions for each in segmented for segment in each.segments if segment.num_trainable]
    if versions:
        event.min_version = int(min(np.min(each) for each in versions))
        event.max_version = int(max(np.max(each) for each in versions))
