"""What every bus promises, run on the memory bus and on a real broker."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.deadletters import LetterLimit
from rein_bus.errors import BusFenced, BusRejected, FatalError
from rein_bus.ports import Assigned, Batch, Bus, Follower, Record, Revoked, Start, Transaction, Work
from rein_bus.testing import Cluster

FINISHED = ev.RolloutFinished
PARTITIONS = 6

M = TypeVar("M", bound=Message)


def finished(group: int, *, member: int = 0) -> ev.RolloutFinished:
    """Records of one group share a key; `member` numbers them."""
    return ev.RolloutFinished(identity=pb.Identity(run="r", task="t", group=f"r.g{group}", member=member, attempt=1))


def assembled(group: int, *, members: int = 0) -> ev.GroupAssembled:
    return ev.GroupAssembled(group=pb.Identity(run="r", task="t", group=f"r.g{group}"), max_version=members)


def names(records: Iterable[Record[Message]]) -> list[tuple[str, int]]:
    """(group, member) of each."""
    found = []
    for record in records:
        assert isinstance(record.message, ev.RolloutFinished)
        found.append((record.message.identity.group, record.message.identity.member))
    return found


async def take(work: Work, num_records: int) -> list[Record[Message]]:
    async with asyncio.timeout(30):
        return [await work.take() for _ in range(num_records)]


async def read(follower: Follower) -> list[Record[Message]]:
    """All records that existed when the follower opened."""
    records = []
    async with asyncio.timeout(30):
        while not follower.has_caught_up():
            records.append(await anext(aiter(follower)))
    return records


async def everything(bus: Bus, message: type[M]) -> list[M]:
    """The topic's messages as of now."""
    async with bus.follow(message) as follower:
        return [record.message for record in await read(follower) if isinstance(record.message, message)]


async def outputs(bus: Bus, groups: Iterable[int] = (1,)) -> list[ev.GroupAssembled]:
    """What readers see of these groups, up to a mark behind it: a commit is seen a moment after it returned."""
    marks = [assembled(group, members=10**6) for group in groups]
    await bus.publish(*marks)
    found: list[ev.GroupAssembled] = []
    async with asyncio.timeout(30), bus.follow(ev.GroupAssembled) as follower:
        while sum(one in marks for one in found) < len(marks):
            message = (await anext(aiter(follower))).message
            assert isinstance(message, ev.GroupAssembled)
            found.append(message)
    return [one for one in found if one not in marks]


async def until(session: Transaction, wanted: type[Any], *, partition: int | None = None) -> Any:
    """The next event of that kind; the others are passed over."""
    async with asyncio.timeout(30):
        async for event in session:
            if isinstance(event, wanted) and partition in (None, event.partition):
                return event
    raise AssertionError("the session ended")


# ---- publish -----------------------------------------------------------------------------------


async def test_a_publish_tells_where_each_record_lies_and_one_key_is_one_partition_in_order(bus: Bus) -> None:
    places = await bus.publish(*(finished(7, member=member) for member in range(5)))

    assert [place.offset for place in places] == [0, 1, 2, 3, 4]
    assert len({place.partition for place in places}) == 1
    async with bus.follow(FINISHED) as follower:
        records = await read(follower)
    assert names(records) == [("r.g7", member) for member in range(5)]
    assert [record.place for record in records] == places
    assert records[0].key == "r.g7"
    assert records[0].at_ms > 1_600_000_000_000


async def test_a_record_over_the_limit_is_refused_by_name_and_nothing_of_the_call_is_written(bus: Bus) -> None:
    large = ev.RolloutLeased(identity=finished(1).identity, runner="x" * 5000)

    with pytest.raises(BusRejected, match=r"rollout.leased.v1, 4096 bytes") as refused:
        await bus.publish(finished(1), large)

    assert refused.value.code == "bus.too_large"
    assert refused.value.context["size_bytes"] == large.ByteSize()
    assert await everything(bus, FINISHED) == []


async def test_a_message_no_topic_carries_is_refused(bus: Bus) -> None:
    with pytest.raises(BusRejected, match=r"no topic carries rein\.v1\.Identity"):
        await bus.publish(finished(1).identity)


# ---- work --------------------------------------------------------------------------------------


async def test_work_comes_in_order_of_its_key(bus: Bus) -> None:
    await bus.publish(*(finished(group, member=member) for member in range(8) for group in range(12)))

    async with bus.work(FINISHED, group="grader") as work:
        taken = names(await take(work, 96))

    for group in range(12):
        assert [member for name, member in taken if name == f"r.g{group}"] == list(range(8))


async def test_take_waits_for_a_record_of_any_of_its_topics(bus: Bus) -> None:
    async with bus.work(FINISHED, ev.RolloutRequested, group="runner") as work:
        waiting = asyncio.ensure_future(take(work, 2))
        await bus.publish(ev.RolloutRequested(identity=finished(1).identity))
        await bus.publish(finished(1))
        taken = await waiting

    assert {type(record.message) for record in taken} == {FINISHED, ev.RolloutRequested}


async def test_after_a_restart_unfinished_records_return_and_none_below_them(bus: Bus) -> None:
    await bus.publish(*(finished(3, member=member) for member in range(10)))
    async with bus.work(FINISHED, group="grader") as work:
        records = await take(work, 10)
        for index in (9, 0, 4, 1, 2, 7):
            await work.done(records[index])

    async with bus.work(FINISHED, group="grader") as work:
        again = names(await take(work, 7))

    assert again == [("r.g3", member) for member in range(3, 10)]


async def test_after_a_restart_finished_work_does_not_return(bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(12)))
    async with bus.work(FINISHED, group="grader") as work:
        for record in reversed(await take(work, 12)):
            await work.done(record)

    async with bus.work(FINISHED, group="grader") as work:
        await bus.publish(finished(99))
        assert names(await take(work, 1)) == [("r.g99", 0)]


async def test_groups_do_not_share_their_work(bus: Bus) -> None:
    await bus.publish(finished(1))
    for group in ("grader", "audit"):
        async with bus.work(FINISHED, group=group) as work:
            await work.done((await take(work, 1))[0])


async def test_a_rebalance_hands_nothing_out_twice_that_a_member_keeps(bus: Bus, other_bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(30)))
    async with bus.work(FINISHED, group="grader") as first:
        in_hand = await take(first, 30)
        async with other_bus.work(FINISHED, group="grader") as second:
            moved = await take(second, 1)
            is_lower = moved[0].place.partition < PARTITIONS // 2  # which half moves is the broker's choice
            half = [record for record in in_hand if (record.place.partition < PARTITIONS // 2) == is_lower]
            moved += await take(second, len(half) - 1)
            assert sorted(names(moved)) == sorted(names(half))

            for record in in_hand:  # the moved ones are no longer ours: harmless
                await first.done(record)
            for record in moved:
                await second.done(record)
            await bus.publish(*(finished(group, member=1) for group in range(30)))
            fresh = [*await take(first, 1), *await take(second, 1)]
            assert {member for _, member in names(fresh)} == {1}


async def test_a_paused_member_takes_nothing_until_resumed_even_across_a_rebalance(bus: Bus, other_bus: Bus) -> None:
    async with bus.work(FINISHED, group="grader") as work:
        work.pause()
        await bus.publish(*(finished(group) for group in range(12)))
        taking = asyncio.ensure_future(take(work, 12))
        async with other_bus.work(FINISHED, group="grader") as second:
            await take(second, 1)
        async with other_bus.work(FINISHED, group="audit") as audit:  # the log is readable all the while
            await take(audit, 12)
        assert not taking.done()

        work.resume()
        assert len(await taking) == 12


# ---- follow ------------------------------------------------------------------------------------


async def test_every_follower_sees_every_record_from_the_earliest_on(bus: Bus, other_bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(12)))

    async with bus.follow(FINISHED) as one, other_bus.follow(FINISHED) as two:
        assert sorted(names(await read(one))) == sorted(names(await read(two)))
        await bus.publish(finished(99))
        for follower in (one, two):
            assert names([await anext(aiter(follower))]) == [("r.g99", 0)]


async def test_a_follower_from_the_latest_has_caught_up_and_sees_only_what_comes(bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(12)))

    async with bus.follow(FINISHED, start=Start.LATEST) as follower:
        assert follower.has_caught_up()
        await bus.publish(finished(99))
        assert names([await anext(aiter(follower))]) == [("r.g99", 0)]


async def test_a_follower_starts_at_the_offsets_it_names_and_earliest_elsewhere(bus: Bus) -> None:
    places = await bus.publish(*(finished(group, member=member) for group in (1, 2, 3) for member in range(4)))
    assert len({place.partition for place in places}) == 3

    async with bus.follow(FINISHED, start={(FINISHED, places[0].partition): 2}) as follower:
        seen = names(await read(follower))

    assert sorted(seen) == [("r.g1", 2), ("r.g1", 3), *((f"r.g{group}", n) for group in (2, 3) for n in range(4))]


async def test_caught_up_returns_after_the_last_old_record_was_handed_out(bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(5)))
    async with bus.follow(FINISHED, ev.RolloutGraded) as follower:
        catching_up = asyncio.ensure_future(follower.caught_up())
        for _ in range(5):
            assert not follower.has_caught_up()
            await anext(aiter(follower))
        assert follower.has_caught_up()
        await catching_up


async def test_a_follower_of_an_empty_topic_has_caught_up_at_once(bus: Bus) -> None:
    async with bus.follow(ev.PolicyPublished) as follower:
        assert follower.has_caught_up()


# ---- transact ----------------------------------------------------------------------------------


async def test_a_session_is_told_of_its_partitions_before_their_records(bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(12)))
    events: list[Assigned | Batch | Revoked] = []
    async with asyncio.timeout(30), bus.transact(FINISHED, ev.RolloutGraded, group="assembler") as session:
        while sum(len(event.records) for event in events if isinstance(event, Batch)) < 12:
            events.append(await anext(aiter(session)))

    assert {event.partition for event in events if isinstance(event, Assigned)} == set(range(PARTITIONS))
    for event in events:
        if isinstance(event, Batch):
            assert events.index(Assigned(event.partition)) < events.index(event)
            assert {record.place.partition for record in event.records} == {event.partition}


async def test_outputs_and_position_are_written_together(bus: Bus) -> None:
    await bus.publish(*(finished(1, member=member) for member in range(3)))
    async with bus.transact(FINISHED, group="assembler") as session:
        batch = await until(session, Batch)
        await session.commit(batch, outputs=[assembled(1, members=len(batch.records))])

    assert await outputs(bus) == [assembled(1, members=len(batch.records))]
    await bus.publish(finished(1, member=3))
    async with bus.transact(FINISHED, group="assembler") as session:
        assert names((await until(session, Batch)).records)[0] == ("r.g1", len(batch.records))


async def test_a_batch_that_was_not_committed_comes_again(bus: Bus) -> None:
    await bus.publish(finished(1))
    async with bus.transact(FINISHED, group="assembler") as session:
        first = await until(session, Batch)
    async with bus.transact(FINISHED, group="assembler") as session:
        second = await until(session, Batch)
        await session.commit(second, outputs=[assembled(1)])

    assert names(first.records) == names(second.records)
    assert await outputs(bus) == [assembled(1)]


async def test_an_output_too_large_is_refused_and_the_batch_can_still_be_committed(bus: Bus) -> None:
    await bus.publish(finished(1))
    async with bus.transact(FINISHED, group="assembler") as session:
        batch = await until(session, Batch)
        too_large = ev.RolloutLeased(identity=finished(1).identity, runner="x" * 5000)
        with pytest.raises(BusRejected):
            await session.commit(batch, outputs=[assembled(1), too_large])
        await session.commit(batch, outputs=[assembled(1)])

    assert await outputs(bus) == [assembled(1)]


async def test_a_commit_covers_the_batches_before_it(bus: Bus) -> None:
    async with bus.transact(FINISHED, group="assembler") as session:
        for _ in range(PARTITIONS):
            await until(session, Assigned)
        await bus.publish(finished(1, member=0))
        await until(session, Batch)
        await bus.publish(finished(1, member=1))
        await session.commit(await until(session, Batch), outputs=[])
    await bus.publish(finished(1, member=2))
    async with bus.transact(FINISHED, group="assembler") as session:
        assert names((await until(session, Batch)).records) == [("r.g1", 2)]


async def test_a_session_seeks_back_to_what_it_still_needs(bus: Bus) -> None:
    places = await bus.publish(*(finished(1, member=member) for member in range(6)))
    partition = places[0].partition
    async with bus.transact(FINISHED, group="assembler") as session:
        committed: list[tuple[str, int]] = []
        while len(committed) < 6:
            batch = await until(session, Batch)
            await session.commit(batch, outputs=[])
            committed += names(batch.records)

    async with bus.transact(FINISHED, ev.RolloutGraded, group="assembler") as session:
        await until(session, Assigned, partition=partition)
        await session.seek(partition, offsets={FINISHED: 4})
        again: list[tuple[str, int]] = []
        while len(again) < 2:
            again += names((await until(session, Batch)).records)
    assert again == [("r.g1", 4), ("r.g1", 5)]


async def test_a_partition_that_moves_fences_its_old_owner_and_nothing_is_doubled(bus: Bus, other_bus: Bus) -> None:
    await bus.publish(*(finished(group) for group in range(12)))
    async with bus.transact(FINISHED, group="assembler") as old:
        batches: dict[int, Batch] = {}
        while sum(len(batch.records) for batch in batches.values()) < 12:
            batch = await until(old, Batch)
            batches[batch.partition] = batch

        async with other_bus.transact(FINISHED, group="assembler") as new:
            moved = {(await until(new, Assigned)).partition for _ in range(3)}
            for partition in moved:
                with pytest.raises(BusFenced):
                    await old.commit(batches[partition], outputs=[assembled(1000)])
            for _ in moved:
                batch = await until(new, Batch)
                await new.commit(batch, outputs=[assembled(batch.partition, members=len(batch.records))])
            for partition in set(batches) - moved:
                batch = batches[partition]
                await old.commit(batch, outputs=[assembled(partition, members=len(batch.records))])
            assert {(await until(old, Revoked)).partition for _ in moved} == moved

    seen = await outputs(bus, [*range(PARTITIONS), 1000])
    assert sorted(output.group.group for output in seen) == [f"r.g{partition}" for partition in range(PARTITIONS)]
    assert sum(output.max_version for output in seen) == 12


# ---- newest, dead letters ----------------------------------------------------------------------


async def test_newest_is_the_last_record_of_a_key(bus: Bus) -> None:
    assert await bus.newest(ev.AssemblerCheckpoint, key="3") is None
    for group in range(200):
        await bus.publish(ev.AssemblerCheckpoint(partition=3, ended_groups=[str(group)]))
    await bus.publish(*(ev.AssemblerCheckpoint(partition=other) for other in (0, 1, 2, 4, 5) for _ in range(30)))

    found = await bus.newest(ev.AssemblerCheckpoint, key="3")

    assert found is not None
    assert found.message == ev.AssemblerCheckpoint(partition=3, ended_groups=["199"])
    assert found.key == "3"


async def test_a_dead_letter_keeps_the_record_its_place_and_the_reason(bus: Bus) -> None:
    await bus.publish(finished(1), finished(1, member=1))
    async with bus.work(FINISHED, group="grader") as work:
        record = (await take(work, 2))[1]
        failure = pb.Failure(owner=pb.OWNER_TASK, code="task.broken", detail="no tests")
        await bus.dead_letter(record, failure=failure, service="grader")

    (letter,) = await everything(bus, ev.DeadLetterRecorded)
    assert letter.topic.endswith("rollout.finished.v1")
    assert (letter.partition, letter.offset) == (record.place.partition, 1)
    assert (letter.service, letter.failure) == ("grader", failure)
    assert FINISHED.FromString(letter.value) == finished(1, member=1)


@pytest.mark.parametrize(
    ("value", "type_name", "code"),
    [
        (b"\xff\xff\xff", "rein.v1.RolloutFinished", "bus.undecodable"),
        (finished(1).SerializeToString(), "rein.v1.RolloutGraded", "bus.wrong_type"),
    ],
)
async def test_poison_is_dead_lettered_with_its_place_and_passed_over(
    bus: Bus, cluster: Cluster, value: bytes, type_name: str, code: str
) -> None:
    await bus.publish(finished(1))
    offset = await cluster.plant(FINISHED, key="r.g1", value=value, type_name=type_name)
    await bus.publish(finished(1, member=1))

    async with bus.work(FINISHED, group="grader") as work:
        records = await take(work, 2)
        for record in records:
            await work.done(record)
    async with bus.follow(FINISHED) as follower:
        followed = await read(follower)
    async with bus.transact(FINISHED, group="assembler") as session:
        batched = names((await until(session, Batch)).records)

    assert names(records) == names(followed) == [("r.g1", 0), ("r.g1", 1)]
    assert batched[0] == ("r.g1", 0)
    letters = await everything(bus, ev.DeadLetterRecorded)
    assert {(letter.offset, letter.failure.code, letter.value) for letter in letters} == {(offset, code, value)}
    assert {"grader", "follower"} <= {letter.service for letter in letters}
    async with bus.work(FINISHED, group="grader") as work:
        await bus.publish(finished(2))
        assert names(await take(work, 1)) == [("r.g2", 0)]


async def test_a_flood_of_poison_stops_the_consumer(cluster: Cluster) -> None:
    for _ in range(4):
        await cluster.plant(FINISHED, key="r.g1", value=b"\xff", type_name="rein.v1.RolloutFinished")

    limit = LetterLimit(max_letters=3, window_s=3600)
    async with cluster.connect(letter_limit=limit) as bus, bus.work(FINISHED, group="grader") as work:
        with pytest.raises(FatalError, match=r"grader gave up 4 records"):
            await take(work, 1)
        assert len(await everything(bus, ev.DeadLetterRecorded)) == 4
