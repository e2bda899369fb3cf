"""The audit: a clean run is clean under any redelivery and order; each broken promise is named with its place."""

from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_cli.audit import audit

RUN = "r"


def who(group: str, member: int = 0, attempt: int = 1) -> pb.Identity:
    return pb.Identity(run=RUN, task="t", group=group, member=member, attempt=attempt)


def turn(identity: pb.Identity, index: int) -> ev.TurnCaptured:
    """Turn 0 has a prompt of 4 and samples 3; turn 1 adds 2 to it and samples 3."""
    captured = ev.TurnCaptured(
        identity=identity,
        turn=index,
        prompt_ids=range(4 if index == 0 else 2),
        num_prompt_tokens=4 if index == 0 else 9,
        sampled_ids=[7, 8, 9],
        logprobs=[-0.5, -0.25, -1.0],
        versions=[ev.VersionSpan(version=1, start=0, end=2), ev.VersionSpan(version=2, start=2, end=3)],
        is_trainable=True,
    )
    if index:
        captured.parent_turn = index - 1
    return captured


def group(name: str, *, state: "ev.GroupState.ValueType" = ev.GROUP_STATE_READY, step: int = 1) -> list[Message]:
    """A group of two: member 0 was retried once and rewarded, member 1 could not be measured."""
    purpose = pb.PURPOSE_EVAL if state == ev.GROUP_STATE_EVALUATED else pb.PURPOSE_TRAIN
    good, bad = who(name, 0, 2), who(name, 1, 1)
    failure = pb.Failure(owner=pb.OWNER_SANDBOX, code="sandbox.start_failed")
    return [
        ev.GroupOpened(group=who(name, 0, 0), size=2, step=step, purpose=purpose),
        ev.RolloutRequested(identity=who(name, 0, 1)),
        ev.RolloutRequested(identity=good),
        ev.RolloutRequested(identity=bad),
        turn(good, 0),
        turn(good, 1),
        ev.RolloutGraded(identity=good, reward=1.0),
        ev.GroupAssembled(
            group=who(name, 0, 0),
            purpose=purpose,
            state=state,
            step=step,
            min_version=1,
            max_version=2,
            failure=pb.Failure(code="group.too_few") if state == ev.GROUP_STATE_DROPPED else None,
            members=[
                ev.MemberOutcome(identity=good, reward=1.0, num_turns=2),
                ev.MemberOutcome(identity=bad, failure=failure),
            ],
        ),
    ]


def clean_run() -> list[Message]:
    return [
        ev.RunChanged(run=RUN, state=ev.RUN_STATE_RUNNING, spec=ev.RunSpec(max_staleness_versions=1)),
        *group("r.g0"),
        *group("r.g1", state=ev.GROUP_STATE_DROPPED),
        *group("r.g2", step=2),
        *group("r.e0", state=ev.GROUP_STATE_EVALUATED),
        ev.StepCompleted(run=RUN, step=1, version=2, groups=["r.g0"]),
        ev.StepCompleted(
            run=RUN,
            step=2,
            version=3,
            skipped=[ev.SkippedGroup(group="r.g2", failure=pb.Failure(code="learner.no_signal"))],
        ),
        ev.RunChanged(run=RUN, state=ev.RUN_STATE_COMPLETED, spec=ev.RunSpec(max_staleness_versions=1)),
    ]


def find(events: list[Message], kind: type[Message], number: int = 0) -> Message:
    return [event for event in events if isinstance(event, kind)][number]


def test_a_clean_run_is_counted_to_the_last_rollout() -> None:
    verdict = audit(clean_run(), run=RUN)
    assert verdict.offences == ()
    assert (verdict.state, verdict.requested, verdict.trained, verdict.evaluated) == ("COMPLETED", 8, 1, 1)
    assert verdict.set_aside == {"group.too_few": 1, "learner.no_signal": 1}
    assert verdict.absent == {"sandbox.start_failed": 4}
    assert (verdict.open, verdict.lost, verdict.doubled, verdict.retried, verdict.steps) == (0, 0, 0, 4, 2)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_redelivery_and_order_change_nothing(data: st.DataObject) -> None:
    once = clean_run()
    ends = [event for event in once if isinstance(event, ev.GroupAssembled)]
    again = data.draw(st.lists(st.sampled_from([event for event in once if event not in ends])))
    shuffled = data.draw(st.permutations([*once, *again]))
    assert audit(shuffled, run=RUN) == audit(once, run=RUN)


def test_events_of_other_runs_are_passed_over() -> None:
    assert audit(clean_run(), run="other").requested == 0


def test_a_run_that_goes_on_may_have_open_rollouts() -> None:
    events = [event for event in clean_run()[:-1] if not isinstance(event, ev.GroupAssembled)]
    verdict = audit([event for event in events if not isinstance(event, ev.StepCompleted)], run=RUN)
    assert verdict.is_clean
    assert (verdict.open, verdict.lost) == (8, 0)


Break = Callable[[list[Message]], object]


def _append(*events: Message) -> Break:
    return lambda log: log.extend(events)


def _drop(kind: type[Message], number: int = 0) -> Break:
    return lambda log: log.remove(find(log, kind, number))


def _change(kind: type[Message], change: Callable[[Message], object], number: int = 0) -> Break:
    return lambda log: change(find(log, kind, number))


@pytest.mark.parametrize(
    ("damage", "code", "about"),
    [
        (_drop(ev.GroupAssembled), "rollout.lost", "r.g0/0"),
        (lambda log: log.append(find(log, ev.GroupAssembled)), "rollout.doubled", "r.g0/1"),
        (lambda log: log.append(find(log, ev.GroupAssembled)), "group.doubled", "r.g0"),
        (_append(ev.StepCompleted(run=RUN, step=3, groups=["r.g0"])), "group.trained_twice", "r.g0"),
        (_append(ev.StepCompleted(run=RUN, step=3, groups=["r.g1"])), "group.not_ready", "r.g1"),
        (_append(ev.StepCompleted(run=RUN, step=3, groups=["r.e0"])), "group.not_ready", "r.e0"),
        (_append(ev.StepCompleted(run=RUN, step=3, groups=["r.g9"])), "group.not_ready", "r.g9"),
        (_append(ev.StepCompleted(run=RUN, step=3, groups=["r.g2"])), "group.trained_and_skipped", "r.g2"),
        (_append(ev.StepCompleted(run=RUN, step=1, groups=["r.g5"])), "step.contradicts", "step 1"),
        (_drop(ev.StepCompleted), "group.untrained", "r.g0"),
        (_change(ev.StepCompleted, lambda step: setattr(step, "version", 9)), "group.stale", "r.g0"),
        (_drop(ev.RolloutGraded), "reward.unfounded", "r.g0/0"),
        (_change(ev.RolloutGraded, lambda grade: setattr(grade, "reward", 0.5)), "reward.unfounded", "r.g0/0"),
        (_change(ev.GroupAssembled, lambda end: end.members[1].ClearField("failure")), "rollout.unexplained", "r.g0/1"),  # type: ignore[attr-defined]
        (_drop(ev.GroupOpened), "group.unknown", "r.g0"),
        (_drop(ev.TurnCaptured, 1), "turn.missing", "r.g0/0#2"),
        (_change(ev.TurnCaptured, lambda each: each.logprobs.pop()), "turn.broken", "r.g0/0#2"),  # type: ignore[attr-defined]
        (_change(ev.TurnCaptured, lambda each: each.versions.pop()), "turn.broken", "r.g0/0#2"),  # type: ignore[attr-defined]
        (_change(ev.TurnCaptured, lambda each: each.prompt_ids.pop()), "turn.broken", "r.g0/0#2"),  # type: ignore[attr-defined]
        (_append(turn(who("r.g0", 0, 2), 1), ev.TurnCaptured(identity=who("r.g0", 0, 2), turn=1, sampled_ids=[1])),
         "turn.contradicts", "r.g0/0#2"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named_with_its_place(damage: Break, code: str, about: str) -> None:
    events = clean_run()
    damage(events)
    assert (code, about) in {(offence.code, offence.about) for offence in audit(events, run=RUN).offences}


def test_an_untrainable_turn_may_be_ragged() -> None:
    events = clean_run()
    captured = find(events, ev.TurnCaptured)
    assert isinstance(captured, ev.TurnCaptured)
    captured.is_trainable = False
    del captured.logprobs[:]
    assert audit(events, run=RUN).is_clean


def test_counts_add_up_to_what_was_requested() -> None:
    verdict = audit(clean_run(), run=RUN)
    parts = [verdict.trained, verdict.evaluated, verdict.open, verdict.lost]
    assert sum(parts) + sum(verdict.set_aside.values()) + sum(verdict.absent.values()) == verdict.requested
