"""The figures a run is judged by."""

import numpy as np

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_cli.report import evaluations, heldout_gain, summarise


def evaluated(task: str, *, step: int, rewards: list[float | None]) -> ev.GroupAssembled:
    group = pb.Identity(run="r", task=task, group=f"r.e{task}-{step}")
    members = [ev.MemberOutcome(reward=reward) if reward is not None else ev.MemberOutcome() for reward in rewards]
    return ev.GroupAssembled(group=group, purpose=pb.PURPOSE_EVAL, step=step, members=members)


def test_a_gain_on_every_task_has_an_interval_above_zero() -> None:
    before = {f"t{i}": [0.0, float(i % 2)] for i in range(40)}
    after = {f"t{i}": [1.0, float(i % 2)] for i in range(40)}
    gain = heldout_gain(before, after=after)
    assert gain is not None
    assert gain.before == 0.25
    assert gain.after == 0.75
    assert gain.ci95[0] > 0


def test_noise_without_a_gain_has_an_interval_around_zero() -> None:
    random = np.random.default_rng(1)
    before = {f"t{i}": list(random.integers(0, 2, 4).astype(float)) for i in range(60)}
    after = {f"t{i}": list(random.integers(0, 2, 4).astype(float)) for i in range(60)}
    gain = heldout_gain(before, after=after)
    assert gain is not None
    assert gain.ci95[0] < 0 < gain.ci95[1]


def test_tasks_without_a_measured_reward_on_either_side_leave_the_comparison() -> None:
    gain = heldout_gain({"a": [0.0], "b": [], "c": [0.0]}, after={"a": [1.0], "b": [1.0], "c": []})
    assert gain is not None
    assert gain.num_tasks == 1


def test_absent_rewards_are_not_zeros_and_a_repeated_group_counts_once() -> None:
    event = evaluated("t", step=0, rewards=[1.0, None])
    assert evaluations([event, event]) == {0: {"t": [1.0]}}


def test_the_summary_compares_the_first_and_the_last_evaluation() -> None:
    events = [
        ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING),
        evaluated("a", step=0, rewards=[0.0]),
        evaluated("a", step=5, rewards=[0.0]),
        evaluated("a", step=9, rewards=[1.0]),
        ev.StepCompleted(step=1, correlation=0.999, mean_reward=0.5),
        ev.StepCompleted(step=1, correlation=0.999, mean_reward=0.5),
    ]
    summary = summarise(events)
    assert summary["heldout_pass_before"] == 0.0
    assert summary["heldout_pass_after"] == 1.0
    assert summary["steps"] == 1
    assert summary["wall_s"] is None
