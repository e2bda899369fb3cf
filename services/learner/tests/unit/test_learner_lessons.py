"""Which groups make a step, and what is learnt from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein.v1 import weights_pb2 as wt
from rein_learner.domain.collector import Collector, Ignored
from rein_learner.domain.lesson import Lesson, Study, lesson_of
from rein_learner.domain.record import Record, from_json, to_json
from rein_learner.domain.runs import Runs
from rein_tokens import PackedGroup, Row


def group(
    number: int,
    *,
    step: int = 1,
    rewards: tuple[float | None, ...] = (1.0, 0.0),
    run: str = "r",
    state: "ev.GroupState.ValueType" = ev.GROUP_STATE_READY,
    version: int = 1,
) -> ev.GroupAssembled:
    name = f"{run}.g{number}"
    members = [
        ev.MemberOutcome(identity=pb.Identity(run=run, group=name, member=index, attempt=1), reward=reward)
        for index, reward in enumerate(rewards)
    ]
    identity = pb.Identity(run=run, task="t", group=name)
    return ev.GroupAssembled(
        group=identity, state=state, members=members, step=step, min_version=version, max_version=version
    )


def row(member: int, *, num_trained: int = 2, version: int = 1) -> Row:
    ids = np.arange(num_trained + 1, dtype=np.uint32)
    return Row(
        member=member,
        token_ids=ids,
        is_trainable=ids > 0,
        sampled_at=ids[1:],
        logprobs=np.full(num_trained, -0.5, dtype=np.float32),
        versions=np.full(num_trained, version, dtype=np.uint32),
    )


def study(event: ev.GroupAssembled, *rows: Row) -> Study:
    return Study(event, PackedGroup(rows or tuple(row(index) for index in range(len(event.members)))))


def lesson(*studies: Study, spec: ev.RunSpec | None = None, version: int = 1) -> Lesson:
    return lesson_of(studies, spec=spec or ev.RunSpec(name="r"), step=version, version=version)


@given(st.permutations(range(12)), st.lists(st.integers(0, 40), max_size=4))
def test_batches_do_not_depend_on_arrival_or_on_restarts(order: list[int], restarts: list[int]) -> None:
    """Twelve groups of four steps on two partitions; after a restart reading goes on at the checkpoint's offsets."""
    logs: list[list[ev.GroupAssembled]] = [[], []]
    for number in order:
        logs[number % 2] += [group(number, step=number // 3 + 1)] * 2
    finished, offsets, batches, num_read = 0, {0: 0, 1: 0}, dict[int, list[str]](), 0
    while finished < 4:
        collector = Collector(run="r", groups_per_step=3, finished_step=finished, offsets=offsets)
        at = dict(offsets)
        while finished < 4:
            partition = num_read % 2 if at[num_read % 2] < len(logs[num_read % 2]) else 1 - num_read % 2
            if at[partition] < len(logs[partition]):
                collector.apply(logs[partition][at[partition]], partition=partition, offset=at[partition])
                at[partition] += 1
            num_read += 1
            while (batch := collector.batch(finished + 1)) is not None:
                finished += 1
                batches[finished] = [each.group.group for each in batch]
                assert collector.finish(finished) == []
                offsets = collector.offsets()
            if num_read in restarts:
                break
    assert batches == {step: [f"r.g{3 * (step - 1) + each}" for each in range(3)] for step in range(1, 5)}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (group(1, run="other"), Ignored.OTHER_RUN),
        (group(1, state=ev.GROUP_STATE_DROPPED), Ignored.NOT_READY),
        (group(1, step=3), Ignored.FINISHED),
        (group(0, step=4), Ignored.DUPLICATE),
        (group(1, step=4), None),
    ],
)
def test_only_ready_groups_of_the_run_and_of_steps_to_come_are_held(
    event: ev.GroupAssembled, reason: Ignored | None
) -> None:
    collector = Collector(run="r", groups_per_step=2, finished_step=3, offsets={})
    collector.apply(group(0, step=4), partition=0, offset=0)
    assert collector.apply(event, partition=0, offset=1) is reason


def test_groups_beyond_a_steps_need_are_handed_back_for_reporting() -> None:
    collector = Collector(run="r", groups_per_step=1, finished_step=0, offsets={})
    for number in (2, 10):
        collector.apply(group(number), partition=0, offset=number)
    assert [each.group.group for each in collector.batch(1) or ()] == ["r.g2"]
    assert collector.finish(1) == ["r.g10"]
    assert collector.num_held == 0


def test_every_row_of_a_rollout_has_the_rollouts_advantage() -> None:
    """Case J1: three rows of one rollout weigh as one reward in the baseline."""
    found = lesson(study(group(0), row(0), row(0), row(0), row(1)))
    assert [each.advantage for each in found.rows] == [0.5, 0.5, 0.5, -0.5]
    assert (found.num_rollouts, found.num_segments, found.num_trainable, found.num_tokens) == (2, 4, 8, 12)


def test_members_without_a_reward_leave_the_statistics() -> None:
    event = group(0, rewards=(1.0, 0.0, 0.0))
    event.members[2].ClearField("reward")
    found = lesson(study(event, row(0), row(1)))
    assert [each.advantage for each in found.rows] == [0.5, -0.5]


def test_groups_without_signal_do_not_dilute_the_others_and_are_named() -> None:
    """Case J5: one live and three dead groups."""
    dead = [study(group(number, rewards=(1.0, 1.0))) for number in (1, 2, 3)]
    found = lesson(study(group(0)), *dead)
    assert found.num_trainable == lesson(study(group(0))).num_trainable
    assert found.groups == ["r.g0"]
    assert [(each.group, each.failure.code) for each in found.skipped] == [
        (f"r.g{number}", "group.no_signal") for number in (1, 2, 3)
    ]
    assert len(found.silent) == 6
    assert found.mean_reward == pytest.approx(7 / 8)


def test_a_member_at_the_mean_counts_in_the_denominator_and_has_no_gradient() -> None:
    found = lesson(study(group(0, rewards=(1.0, 0.5, 0.0))))
    assert [each.advantage for each in found.rows] == [0.5, -0.5]
    assert found.num_trainable == 6


def test_a_stale_group_is_set_aside_when_it_is_consumed() -> None:
    """Case F15: by the versions that sampled, against the policy's now."""
    spec = ev.RunSpec(name="r", max_staleness_versions=2)
    old, fresh = study(group(0, version=4)), study(group(1, version=5))
    found = lesson(old, fresh, spec=spec, version=7)
    assert found.groups == ["r.g1"]
    assert [(each.group, each.failure.code) for each in found.skipped] == [("r.g0", "staleness.exceeded")]
    assert found.max_staleness_versions == 2


def test_a_group_whose_arrays_are_gone_is_set_aside() -> None:
    found = lesson(Study(group(0), None))
    assert [each.failure.code for each in found.skipped] == ["group.unreadable"]
    assert found.rows == []


def test_shuffled_rewards_have_the_same_values_and_nothing_to_do_with_the_rollouts() -> None:
    spec = ev.RunSpec(name="r", shuffle_rewards=True, seed=3)
    rewards = (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    same = 0
    for number in range(200):
        event = group(number, rewards=rewards)
        found = lesson(study(event), spec=spec)
        assert sorted(each.advantage for each in found.rows) == [-0.5] * 4 + [0.5] * 4
        same += sum((each.advantage > 0) == (reward > 0) for each, reward in zip(found.rows, rewards, strict=True))
        again = lesson(study(event), spec=spec)
        assert [each.advantage for each in found.rows] == [each.advantage for each in again.rows]
    assert same / (200 * 8) == pytest.approx(0.5, abs=0.05)


def test_a_run_only_moves_forward() -> None:
    runs = Runs()
    running = ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=ev.RunSpec(name="r"))
    runs.apply(running)
    assert [spec.name for spec in runs.running()] == ["r"]
    runs.apply(ev.RunChanged(run="r", state=ev.RUN_STATE_FAILED))
    runs.apply(running)
    assert runs.running() == []
    assert not runs.is_running("r")


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False), st.integers(0, 2**63 - 1))
def test_a_record_comes_back_from_json_as_it_was(loss: float, logprob: float, size: int) -> None:
    completed = ev.StepCompleted(run="r", step=3, version=4, loss=loss, groups=["r.g1"], max_logprob_gap=loss)
    completed.at.FromMilliseconds(1234567890123)
    record = Record(
        offsets={0: 5, 3: 7},
        manifest=wt.WeightManifest(run="r", size_bytes=size, probe=wt.Probe(token_ids=[1, 2], logprobs=[logprob])),
        policy=ev.PolicyPublished(run="r", version=4, step=3),
        completed=completed,
    )
    assert from_json(to_json(record, digests={"a": "b"})) == (record, {"a": "b"})
