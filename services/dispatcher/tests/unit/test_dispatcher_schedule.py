"""The schedule over the books of a run, driven by a small world that answers every request."""

import random
from collections import Counter

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import attempt_id, rollout_id
from rein_dispatcher.domain.book import RunBook
from rein_dispatcher.domain.schedule import DROPPED_STEPS_LIMIT, Scheduler, Tasks

TASKS = Tasks(
    train=[f"t{i}" for i in range(7)],
    heldout=[f"h{i}" for i in range(3)],
    digests={name: f"digest-{name}" for name in [*(f"t{i}" for i in range(7)), *(f"h{i}" for i in range(3))]},
)


def make_spec(**changes: object) -> ev.RunSpec:
    spec = ev.RunSpec(
        name="r",
        group_size=2,
        min_group_size=2,
        groups_per_step=2,
        steps=3,
        max_staleness_versions=1,
        max_attempts=2,
        group_deadline_s=1000,
        harnesses=[ev.HarnessShare(harness="null", weight=1)],
        eval=ev.EvalSpec(at_steps=[0, 3], num_tasks=3, samples_per_task=1),
    )
    for name, value in changes.items():
        setattr(spec, name, value)
    return spec


class World:
    """Answers a run's requests: leases, grades, assembles groups, trains, confirms versions."""

    def __init__(self, spec: ev.RunSpec, *, seed: int = 0, p_absent: float = 0.0, p_lost: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.p_absent, self.p_lost = p_absent, p_lost
        self.book = RunBook(ev.RunChanged(run=spec.name, state=ev.RUN_STATE_RUNNING, spec=spec))
        self.scheduler = Scheduler(tasks=TASKS, lease_s=10)
        self.log: list[Message] = []
        self.now_s = 0.0
        self.groups: dict[str, ev.GroupOpened] = {}
        self.outcomes: dict[str, dict[int, float | None]] = {}
        self.ended: dict[str, ev.GroupState.ValueType] = {}
        self.version = 0

    def emit(self, message: Message) -> None:
        self.log.append(message)
        self.book.apply(message, now_s=self.now_s)

    def run(self, *, rounds: int = 200) -> None:
        self.publish_version(1)
        for _ in range(rounds):
            if self.book.run.state != ev.RUN_STATE_RUNNING:
                return
            self.turn()

    def turn(self) -> None:
        for message in self.scheduler.decide(self.book, now_s=self.now_s):
            self.emit(message)
            self.react(message)
        self.train()
        self.now_s += 11

    def react(self, message: Message) -> None:
        if isinstance(message, ev.GroupOpened):
            self.groups[message.group.group] = message
            self.outcomes[message.group.group] = {}
        elif isinstance(message, ev.RolloutRequested):
            self.play(message.identity)
        elif isinstance(message, ev.RolloutFenced) and message.is_final:
            self.settle(message.identity, None)

    def play(self, identity: pb.Identity) -> None:
        self.emit(ev.RolloutLeased(identity=identity, state=ev.LEASE_STATE_TAKEN, lease_s=10))
        if self.random.random() < self.p_lost:
            return
        graded = ev.RolloutGraded(identity=identity)
        if self.random.random() < self.p_absent:
            graded.failure.CopyFrom(pb.Failure(owner=pb.OWNER_SANDBOX, code="sandbox.start_failed"))
            self.emit(graded)
            return
        graded.reward = self.random.randint(0, 1)
        self.emit(graded)
        self.settle(identity, graded.reward)

    def settle(self, identity: pb.Identity, reward: float | None) -> None:
        group, members = self.groups[identity.group], self.outcomes[identity.group]
        members.setdefault(identity.member, reward)
        if len(members) < group.size or identity.group in self.ended:
            return
        num_rewarded = sum(value is not None for value in members.values())
        state = ev.GROUP_STATE_READY if num_rewarded >= group.min_size else ev.GROUP_STATE_DROPPED
        if group.purpose == pb.PURPOSE_EVAL:
            state = ev.GROUP_STATE_EVALUATED
        self.ended[identity.group] = state
        outcomes = [
            ev.MemberOutcome(identity=pb.Identity(group=identity.group, member=i), reward=r)
            for i, r in sorted(members.items())
        ]
        assembled = ev.GroupAssembled(
            group=group.group, purpose=group.purpose, state=state, step=group.step, members=outcomes
        )
        self.emit(assembled)

    def train(self) -> None:
        step = self.version
        ready = [
            name
            for name, state in self.ended.items()
            if state == ev.GROUP_STATE_READY and self.groups[name].step == step
        ]
        if step > 0 and step <= self.book.spec.steps and len(ready) == self.book.spec.groups_per_step:
            self.publish_version(self.version + 1)

    def publish_version(self, version: int) -> None:
        self.version = version
        self.emit(ev.PolicyPublished(run="r", version=version, step=version - 1))
        self.emit(ev.NodeReported(node="n", run="r", state=ev.NODE_STATE_READY, version=version))


def test_a_run_opens_exactly_its_groups_and_completes() -> None:
    world = World(make_spec())
    world.run()
    assert world.book.run.state == ev.RUN_STATE_COMPLETED
    steps = Counter(group.step for group in world.groups.values() if group.purpose == pb.PURPOSE_TRAIN)
    assert steps == {1: 2, 2: 2, 3: 2}
    evaluated = Counter(group.step for group in world.groups.values() if group.purpose == pb.PURPOSE_EVAL)
    assert evaluated == {0: 3, 3: 3}
    assert world.book.counts.requested == 6 * 2 + 6


@given(st.integers(0, 10_000), st.floats(0, 0.4), st.floats(0, 0.4))
@settings(max_examples=60, deadline=None)
def test_whatever_fails_every_step_gets_its_ready_groups_and_no_attempt_is_asked_for_twice(
    seed: int, p_absent: float, p_lost: float
) -> None:
    world = World(make_spec(min_group_size=1), seed=seed, p_absent=p_absent, p_lost=p_lost)
    world.run(rounds=600)
    assert world.book.run.state in (ev.RUN_STATE_COMPLETED, ev.RUN_STATE_FAILED)
    requests = Counter(str(attempt_id(m.identity)) for m in world.log if isinstance(m, ev.RolloutRequested))
    assert set(requests.values()) <= {1}
    attempts = Counter(str(rollout_id(m.identity)) for m in world.log if isinstance(m, ev.RolloutRequested))
    assert max(attempts.values()) <= world.book.spec.max_attempts
    if world.book.run.state == ev.RUN_STATE_COMPLETED:
        ready = Counter(world.groups[name].step for name, state in world.ended.items() if state == ev.GROUP_STATE_READY)
        assert ready == {1: 2, 2: 2, 3: 2}


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_books_read_the_same_in_any_order_and_with_every_event_twice(seed: int, shuffler: random.Random) -> None:
    world = World(make_spec(min_group_size=1), seed=seed, p_absent=0.3)
    world.run(rounds=600)
    events = world.log * 2
    shuffler.shuffle(events)
    again = RunBook(ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=make_spec(min_group_size=1)))
    for event in events:
        again.apply(event, now_s=0.0)
    assert again.ended == world.book.ended
    assert again.opened == world.book.opened
    assert again.num_train_groups_by_step == world.book.num_train_groups_by_step
    assert again.eval_groups == world.book.eval_groups
    assert again.run.state == world.book.run.state
    assert again.counts.requested == world.book.counts.requested
    assert again.counts.rewarded == world.book.counts.rewarded


def test_no_training_group_is_opened_beyond_the_staleness_bound_or_a_due_evaluation() -> None:
    spec = make_spec(max_staleness_versions=1, steps=5)
    spec.eval.at_steps[:] = [2]
    world = World(spec)
    world.publish_version(1)
    for _ in range(40):
        for message in world.scheduler.decide(world.book, now_s=world.now_s):
            if isinstance(message, ev.GroupOpened) and message.purpose == pb.PURPOSE_TRAIN:
                assert message.step <= message.policy_version + 1
                assert message.step <= 2 or world.book.eval_groups.get(2), "training overtook the evaluation"
            world.emit(message)
            world.react(message)
        world.train()
    assert world.book.run.state == ev.RUN_STATE_COMPLETED


def test_a_lost_lease_is_fenced_before_the_next_attempt_is_requested() -> None:
    world = World(make_spec(), p_lost=1.0)
    world.publish_version(1)
    for _ in range(4):
        world.turn()
    kinds = [
        (type(m).__name__, m.identity.attempt)
        for m in world.log
        if isinstance(m, ev.RolloutRequested | ev.RolloutFenced) and m.identity.group == "r.e0"
    ]
    assert kinds[:3] == [("RolloutRequested", 1), ("RolloutFenced", 1), ("RolloutRequested", 2)]


def test_an_absent_grade_owned_by_the_task_is_not_tried_again() -> None:
    world = World(make_spec())
    world.publish_version(1)
    opened = ev.GroupOpened(
        group=pb.Identity(run="r", task="t0", group="r.g0"), size=1, min_size=1, purpose=pb.PURPOSE_TRAIN, step=1
    )
    identity = pb.Identity(run="r", task="t0", group="r.g0", member=0, attempt=1)
    world.emit(opened)
    world.emit(ev.RolloutRequested(identity=identity))
    world.emit(ev.RolloutGraded(identity=identity, failure=pb.Failure(owner=pb.OWNER_TASK, code="task.digest")))
    fences = [m for m in world.scheduler.decide(world.book, now_s=0) if isinstance(m, ev.RolloutFenced)]
    assert [(f.identity.attempt, f.is_final, f.failure.code) for f in fences] == [(1, True, "task.digest")]


def test_a_group_past_its_deadline_gives_up_all_members() -> None:
    world = World(make_spec(group_deadline_s=50, max_attempts=100), p_lost=1.0)
    world.publish_version(1)
    for _ in range(12):
        world.turn()
    late = [m for m in world.log if isinstance(m, ev.RolloutFenced) and m.failure.code == "group.deadline"]
    assert late
    assert all(fence.is_final for fence in late)


def test_a_run_whose_groups_all_drop_fails_with_the_owner_of_the_last_failure() -> None:
    spec = make_spec(max_attempts=1)
    spec.eval.at_steps[:] = []
    world = World(spec, p_absent=1.0)
    world.publish_version(1)
    for _ in range(40):
        world.turn()
        if world.book.run.state != ev.RUN_STATE_RUNNING:
            break
    assert world.book.run.state == ev.RUN_STATE_FAILED
    assert world.book.run.failure.code == "run.groups_dropped"
    assert world.book.num_dropped_in_a_row >= DROPPED_STEPS_LIMIT * spec.groups_per_step


def test_a_stop_alert_fails_the_run_and_gives_up_what_is_open() -> None:
    world = World(make_spec(), p_lost=1.0)
    world.publish_version(1)
    world.turn()
    world.emit(ev.AlertRaised(run="r", code="learner.correlation_low", severity=ev.SEVERITY_STOP, detail="0.5 < 0.9"))
    world.turn()
    world.turn()
    assert world.book.run.state == ev.RUN_STATE_FAILED
    assert world.book.run.failure.code == "learner.correlation_low"
    assert not world.book.open_groups()


@pytest.mark.parametrize("state", [ev.RUN_STATE_STOPPING])
def test_a_stopped_run_ends_once_its_groups_have_ended(state: "ev.RunState.ValueType") -> None:
    world = World(make_spec(), p_lost=1.0)
    world.publish_version(1)
    world.turn()
    world.emit(ev.RunChanged(run="r", state=state, spec=world.book.spec))
    world.turn()
    world.turn()
    assert world.book.run.state == ev.RUN_STATE_STOPPED
    assert not world.book.open_groups()


def test_evaluations_before_and_after_use_the_same_tasks_and_harnesses() -> None:
    spec = make_spec()
    spec.harnesses.add(harness="other", weight=1)
    world = World(spec)
    world.run()
    drawn: dict[int, set[tuple[str, int, str]]] = {0: set(), 3: set()}
    for message in world.log:
        if isinstance(message, ev.RolloutRequested) and message.purpose == pb.PURPOSE_EVAL:
            step = world.groups[message.identity.group].step
            drawn[step].add((message.identity.task, message.identity.member, message.harness))
    assert drawn[0] == drawn[3]
    assert len(drawn[0]) == 3
