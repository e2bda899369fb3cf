"""Boards, windows and alerts: folds that do not mind order or repetition."""

import random

import pytest
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_observer.adapters.plots import PLOTS, draw
from rein_observer.domain.alerts import Limits, due
from rein_observer.domain.board import Boards, RunBoard
from rein_observer.domain.windows import add, empty

LIMITS = Limits(absent_share=0.2, fork_rate=0.2, num_rollouts=4)


def identity(group: str = "r.g0", *, member: int = 0, attempt: int = 1, task: str = "t") -> pb.Identity:
    return pb.Identity(run="r", task=task, group=group, member=member, attempt=attempt)


def assembled(group: str, *rewards: float | None, step: int = 1, is_eval: bool = False) -> ev.GroupAssembled:
    members = [ev.MemberOutcome(identity=identity(group, member=i), reward=r) for i, r in enumerate(rewards)]
    return ev.GroupAssembled(
        group=identity(group, task=f"task of {group}"),
        purpose=pb.PURPOSE_EVAL if is_eval else pb.PURPOSE_TRAIN,
        state=ev.GROUP_STATE_EVALUATED if is_eval else ev.GROUP_STATE_READY,
        members=members,
        step=step,
    )


def life() -> list[Message]:
    """Events of one run: a retried rollout, an ended group, an evaluation, a step."""
    retry = identity(attempt=2)
    failure = pb.Failure(owner=pb.OWNER_SANDBOX, code="sandbox.start_failed")
    return [
        ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=ev.RunSpec(steps=3)),
        ev.RolloutRequested(identity=identity("r.g1")),
        ev.RolloutLeased(identity=identity("r.g1"), state=ev.LEASE_STATE_TAKEN),
        ev.RolloutGraded(identity=identity("r.g2", member=3), failure=failure),
        ev.RolloutRequested(identity=identity("r.g2", member=3, attempt=2)),
        ev.TurnCaptured(identity=identity("r.g1"), versions=[ev.VersionSpan(version=1, start=0, end=7)]),
        ev.FindingRecorded(identity=retry, code="sampling.overridden"),
        assembled("r.g0", 1.0, 0.0, None),
        assembled("r.e0", 1.0, 1.0, step=0, is_eval=True),
        assembled("r.e1", 0.0, 0.0, step=0, is_eval=True),
        ev.PolicyPublished(run="r", version=2),
        ev.StepCompleted(run="r", step=1, version=2, correlation=0.999, num_rollouts=2, num_trainable_tokens=80),
        ev.NodeReported(node="n", run="r", state=ev.NODE_STATE_READY, version=2),
    ]


def board_of(events: list[Message]) -> RunBoard:
    boards = Boards()
    for event in events:
        boards.apply(event)
    return boards.runs["r"]


def test_the_board_tells_what_happened() -> None:
    board = board_of(life())
    assert board.in_flight() == {"requested": 1, "running": 1, "finished": 0, "graded": 1}
    assert board.outcomes == {"rewarded": 6, "absent": 1, "ready": 1, "evaluated": 2, "retried": 1}
    assert board.failures == {("sandbox", "sandbox.start_failed"): 1}
    assert board.evaluations[0].pass_rate == 0.5
    assert board.version == 2
    assert board.num_sampled_tokens == 7


@pytest.mark.parametrize("seed", range(20))
def test_the_board_is_the_same_in_any_order_and_with_everything_but_findings_twice(seed: int) -> None:
    once = life()
    twice = once + [event for event in once if not isinstance(event, ev.FindingRecorded)]
    random.Random(seed).shuffle(twice)
    shuffled, straight = board_of(twice), board_of(once)
    assert shuffled.outcomes == straight.outcomes
    assert shuffled.evaluations == straight.evaluations
    assert shuffled.failures == straight.failures
    assert shuffled.num_turns == straight.num_turns
    assert shuffled.in_flight() == straight.in_flight()


def test_a_window_sums_what_ended_in_it_and_leaves_absent_rewards_out_of_the_pass_rate() -> None:
    window = empty()
    for event in [assembled("r.g0", 1.0, 0.0, None), ev.StepCompleted(run="r", step=1, correlation=0.9)]:
        window = add(window, event)
    assert (window["rollouts"], window["rewards"], window["absent"]) == (2, 1.0, 1)
    assert (window["steps"], window["correlation_min"]) == (1, 0.9)
    assert empty()["failures"] == {}


def test_too_many_absent_rewards_are_an_alert_that_names_the_commonest_owner_once() -> None:
    board = board_of([*life(), assembled("r.g3", None, None, None, 1.0)])
    (alert,) = due(board, limits=LIMITS)
    assert alert.code == "rollouts.absent"
    assert "sandbox: sandbox.start_failed" in alert.detail
    board.apply(alert)
    assert due(board, limits=LIMITS) == []


def test_rewards_without_any_recorded_turn_stop_the_run() -> None:
    board = board_of([assembled("r.g0", 1.0, 0.0, 1.0, 0.0)])
    assert [(alert.code, alert.severity) for alert in due(board, limits=LIMITS)] == [("turns.none", ev.SEVERITY_STOP)]


def test_a_healthy_run_raises_nothing() -> None:
    board = board_of([*life()[:-6], assembled("r.g9", 1.0, 0.0, 1.0, 1.0)])
    board.failures.clear()
    assert due(board, limits=LIMITS) == []


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_is_drawn_for_an_empty_run_and_for_a_full_one(name: str) -> None:
    for board in (RunBoard("r"), board_of(life())):
        assert draw(board, name).startswith(b"<?xml")
    assert draw(RunBoard("r"), name, file_format="png").startswith(b"\x89PNG")
