"""A group's end does not depend on the order, the number of times or the crashes in which its events are read."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_assembler.domain.ending import Ending, ending_of
from rein_assembler.domain.group import Event, Group, Ignored
from rein_assembler.domain.partition import ENDED_KEPT, Partition
from rein_contracts.topics import topic_of
from rein_tokens import Turn, unpack

RUNNER = pb.Failure(owner=pb.OWNER_SANDBOX, code="lease.lost", detail="The runner stopped renewing its lease.")


def identity(member: int, attempt: int, *, group: str = "r.g0") -> pb.Identity:
    return pb.Identity(run="r", task="t", group=group, member=member, attempt=attempt)


def opened(
    size: int, *, min_size: int = 1, group: str = "r.g0", purpose: "pb.Purpose.ValueType" = pb.PURPOSE_TRAIN
) -> ev.GroupOpened:
    return ev.GroupOpened(
        group=pb.Identity(run="r", task="t", group=group), size=size, min_size=min_size, purpose=purpose, step=3
    )


def turn(who: pb.Identity, index: int, *, version: int = 1) -> ev.TurnCaptured:
    """The index-th turn of a linear attempt: two new prompt ids, two sampled ones."""
    return ev.TurnCaptured(
        identity=who,
        turn=index,
        parent_turn=index - 1 if index else None,
        kind=ev.TURN_KIND_MAIN,
        prompt_ids=[100 * who.member + index, who.attempt],
        num_prompt_tokens=4 * index + 2,
        sampled_ids=[7, index],
        logprobs=[-0.25, -0.5],
        versions=[ev.VersionSpan(version=version, start=0, end=2)],
        is_trainable=True,
    )


def rewarded(who: pb.Identity, *, num_turns: int = 2, reward: float = 1.0, version: int = 1) -> list[Event]:
    """Everything about an attempt that ends well."""
    return [
        *(turn(who, index, version=version) for index in range(num_turns)),
        ev.RolloutFinished(identity=who, harness="null", num_turns=num_turns),
        ev.RolloutGraded(identity=who, reward=reward, num_turns=num_turns),
    ]


def fenced(who: pb.Identity, *, is_final: bool = False) -> ev.RolloutFenced:
    return ev.RolloutFenced(identity=who, failure=RUNNER, is_final=is_final)


def end(group: Group) -> Ending:
    assert group.is_settled
    turns = {
        member: {index: held for index, held in settled.turns.items() if isinstance(held, Turn)}
        for member, settled in group.settled.items()
        if settled.reward is not None
    }
    return ending_of(group, turns=turns)


def fold(events: Sequence[Event]) -> Group:
    group = Group("r.g0")
    for event in events:
        group.apply(event)
    return group


@st.composite
def stories(draw: st.DrawFn, *, group: str = "r.g0") -> list[Event]:
    """A group in which no fence races a reward: what happened does not depend on who reads it when."""
    size = draw(st.integers(1, 3))
    events: list[Event] = [opened(size, min_size=draw(st.integers(1, size)), group=group)]
    for member in range(size):
        last = draw(st.integers(1, 3))
        for attempt in range(1, last + 1):
            who = identity(member, attempt, group=group)
            is_last = attempt == last
            attempted = rewarded(who, num_turns=draw(st.integers(0, 3)), reward=draw(st.sampled_from([0.0, 0.5, 1.0])))
            if is_last and draw(st.booleans()):
                events += attempted
                continue
            events += draw(st.lists(st.sampled_from(attempted[:-1]), unique_by=id))
            if draw(st.booleans()):
                events.append(ev.RolloutGraded(identity=who, failure=RUNNER))
            events.append(fenced(who, is_final=is_last))
    return events


@given(stories(), st.data())
def test_any_order_and_any_repetition_gives_the_same_end(events: list[Event], data: st.DataObject) -> None:
    wanted = end(fold(events))
    again = data.draw(st.lists(st.sampled_from(events), max_size=10))
    shuffled = data.draw(st.permutations([*events, *again]))
    found = end(fold(shuffled))
    assert found.event == wanted.event
    assert found.arrays == wanted.arrays
    assert [member.identity.member for member in found.event.members] == list(range(events[0].size))  # type: ignore[union-attr]
    for member in found.event.members:
        assert member.HasField("reward") or member.failure.code == "lease.lost"


class Reader:
    """An assembler of one partition without a bus: reads its topics in any interleaving, writes ends and checkpoints
    together, and may be killed between any two records."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.logs: dict[str, list[Event]] = {}
        for event in events:
            self.logs.setdefault(topic_of(type(event)).noun_event, []).append(event)
        self.ends: list[Ending] = []
        self.saved: ev.AssemblerCheckpoint | None = None
        self.restart()

    def restart(self) -> None:
        self.partition = Partition(0, checkpoint=self.saved)
        self.at = {topic: self.saved.low_offsets[topic] if self.saved else 0 for topic in self.logs}

    def unread(self) -> list[str]:
        return [topic for topic, log in self.logs.items() if self.at[topic] < len(log)]

    def read(self, topic: str) -> None:
        offset = self.at[topic]
        self.partition.apply(self.logs[topic][offset], topic=topic, offset=offset, now_s=0)
        self.at[topic] = offset + 1

    def commit(self) -> None:
        ended = self.partition.settled()
        self.ends += [end(group) for group in ended]
        for group in ended:
            self.partition.end(group.name)
        self.saved = self.partition.checkpoint()


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True), st.data())
def test_each_group_ends_once_whatever_crashes_between_reading_and_writing(
    numbers: list[int], data: st.DataObject
) -> None:
    parts = [data.draw(stories(group=f"r.g{number}")) for number in numbers]
    events = data.draw(st.permutations([event for part in parts for event in part]))
    repeated = data.draw(st.lists(st.sampled_from(events), max_size=6))
    reader = Reader([*events, *repeated])
    num_crashes = 0
    while unread := reader.unread():
        what = data.draw(st.sampled_from(["read", "read", "read", "commit", "crash"]))
        if what == "crash" and num_crashes < 5:
            num_crashes += 1
            reader.restart()
        elif what == "commit":
            reader.commit()
        else:
            reader.read(data.draw(st.sampled_from(unread)))
    reader.commit()
    assert sorted(each.event.group.group for each in reader.ends) == sorted(f"r.g{number}" for number in numbers)
    wanted = {each.event.group.group: each for each in (end(_alone(part)) for part in parts)}
    for found in reader.ends:
        assert found.arrays == wanted[found.event.group.group].arrays
        assert found.event == wanted[found.event.group.group].event


def _alone(events: Sequence[Event]) -> Group:
    group = Group("alone")
    for event in events:
        group.apply(event)
    return group


def test_a_grade_counts_only_once_its_turns_and_its_rollouts_end_are_there() -> None:
    who = identity(0, 1)
    *turns, finished, graded = rewarded(who)
    group = fold([opened(1), graded, turns[1], finished])
    assert not group.is_settled
    group.apply(turns[0])
    assert group.is_settled


def test_a_fence_read_before_the_grade_rules_the_attempt_out_and_the_next_one_counts() -> None:
    late = rewarded(identity(0, 1), reward=1.0)
    group = fold([opened(1), fenced(identity(0, 1)), *late])
    assert not group.is_settled
    assert group.apply(late[0]) is Ignored.FENCED
    for event in rewarded(identity(0, 2), reward=0.0):
        group.apply(event)
    (member,) = end(group).event.members
    assert (member.identity.attempt, member.reward) == (2, 0.0)


def test_a_grade_read_before_the_fence_stands() -> None:
    *turns, finished, graded = rewarded(identity(0, 1))
    group = fold([opened(1), graded, fenced(identity(0, 1)), finished, *turns])
    assert end(group).event.members[0].reward == 1.0


def test_a_final_fence_ends_a_member_whose_turns_never_came() -> None:
    *_, finished, graded = rewarded(identity(0, 1))
    group = fold([opened(1), graded, finished, fenced(identity(0, 1), is_final=True)])
    (member,) = end(group).event.members
    assert not member.HasField("reward")
    assert member.failure == RUNNER


def test_a_grade_without_a_reward_settles_nothing() -> None:
    *turns, finished, _ = rewarded(identity(0, 1))
    group = fold([opened(1), *turns, finished])
    assert group.apply(ev.RolloutGraded(identity=identity(0, 1), failure=RUNNER)) is Ignored.UNMEASURED
    assert not group.is_settled


def test_seven_of_eight_make_a_group_when_enough_have_rewards() -> None:
    """Case J3."""
    group = fold([opened(8, min_size=6), *(e for m in range(7) for e in rewarded(identity(m, 1)))])
    group.apply(fenced(identity(7, 3), is_final=True))
    ending = end(group)
    assert ending.event.state == ev.GROUP_STATE_READY
    assert {row.member for row in unpack(ending.arrays).rows} == set(range(7))


def test_too_few_rewards_drop_the_group_in_the_name_of_what_befell_most_members() -> None:
    events = [*rewarded(identity(0, 1)), *(fenced(identity(member, 1), is_final=True) for member in (1, 2))]
    ending = end(fold([opened(3, min_size=2), *events]))
    assert ending.event.state == ev.GROUP_STATE_DROPPED
    assert ending.event.failure.code == "group.too_few_rewards"
    assert ending.event.failure.owner == pb.OWNER_SANDBOX
    assert "lease.lost" in ending.event.failure.detail
    assert ending.arrays == b""


def test_a_rollout_without_a_turn_has_its_reward_and_no_tokens() -> None:
    """Cases J1 and E7: one reward per rollout, whatever its rows."""
    failed = pb.Failure(owner=pb.OWNER_POLICY, code="policy.no_turns", detail="It made no call.")
    silent = ev.RolloutGraded(identity=identity(0, 1), reward=0.0, num_turns=0, failure=failed)
    finished = ev.RolloutFinished(identity=identity(0, 1), harness="null")
    ending = end(fold([opened(2), silent, finished, *rewarded(identity(1, 1))]))
    assert ending.event.state == ev.GROUP_STATE_READY
    none, two = ending.event.members
    assert (none.reward, none.num_trainable_tokens, none.failure) == (0.0, 0, failed)
    assert (two.num_turns, two.num_segments, two.num_trainable_tokens, two.num_prompt_tokens) == (2, 1, 4, 4)


@pytest.mark.parametrize(("num_turns", "owner"), [(0, pb.OWNER_HARNESS), (2, pb.OWNER_INFERENCE)])
def test_a_group_without_a_trainable_token_is_dropped_by_name(num_turns: int, owner: "pb.Owner.ValueType") -> None:
    """Case B6: nothing the learner could choke on leaves here."""
    events = rewarded(identity(0, 1), num_turns=num_turns)
    for event in events:
        if isinstance(event, ev.TurnCaptured):
            del event.logprobs[:]
    ending = end(fold([opened(1), *events]))
    assert ending.event.state == ev.GROUP_STATE_DROPPED
    assert (ending.event.failure.code, ending.event.failure.owner) == ("group.no_trainable_tokens", owner)


def test_an_evaluation_is_counted_and_never_trained_on() -> None:
    ending = end(fold([opened(1, purpose=pb.PURPOSE_EVAL), *rewarded(identity(0, 1))]))
    assert ending.event.state == ev.GROUP_STATE_EVALUATED
    assert ending.event.members[0].num_sampled_tokens == 4
    assert ending.arrays == b""


def test_the_group_names_the_oldest_and_newest_version_of_its_trainable_tokens() -> None:
    events = [*rewarded(identity(0, 1), version=4), *rewarded(identity(1, 1), version=6)]
    event = end(fold([opened(2), *events])).event
    assert (event.min_version, event.max_version, event.step) == (4, 6, 3)


def test_a_turn_delivered_twice_counts_once() -> None:
    """Case J6."""
    events = rewarded(identity(0, 1))
    event = end(fold([opened(1), events[0], *events])).event
    assert event.members[0].num_trainable_tokens == 4


def test_late_records_of_an_ended_group_are_known_for_what_they_are() -> None:
    partition = Partition(0)
    events = _numbered([opened(1), *rewarded(identity(0, 1))])
    for event, topic, offset in events:
        partition.apply(event, topic=topic, offset=offset, now_s=0)
    partition.end("r.g0")
    restored = Partition(0, checkpoint=partition.checkpoint())
    late = turn(identity(0, 1), 5)
    for each in (partition, restored):
        assert each.apply(late, topic="turn.captured", offset=9, now_s=0) is Ignored.ENDED
        assert each.num_open == 0


def test_ended_groups_are_forgotten_only_when_their_records_cannot_be_read_again() -> None:
    partition = Partition(0)
    partition.apply(opened(1, group="r.g99999"), topic="group.opened", offset=0, now_s=0)
    for number in range(ENDED_KEPT + 10):
        partition.apply(opened(1, group=f"r.g{number}"), topic="group.opened", offset=number + 1, now_s=0)
        partition.end(f"r.g{number}")
    assert len(partition.checkpoint().ended_groups) == ENDED_KEPT + 10
    partition.end("r.g99999")
    assert len(partition.checkpoint().ended_groups) == ENDED_KEPT


def test_a_group_that_is_never_opened_is_handed_out_for_reporting_once() -> None:
    partition = Partition(0)
    partition.apply(turn(identity(0, 1), 0), topic="turn.captured", offset=5, now_s=100)
    assert partition.forget_unopened(now_s=150, limit_s=60) == []
    assert [group.name for group in partition.forget_unopened(now_s=161, limit_s=60)] == ["r.g0"]
    assert partition.num_open == 0
    assert partition.checkpoint().low_offsets == {"turn.captured": 6}


def _numbered(events: Sequence[Event]) -> Iterator[tuple[Event, str, int]]:
    for event in events:
        yield event, topic_of(type(event)).noun_event, 0
