"""The memory bus's faults, and what depends on them."""

import asyncio

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.deadletters import DeadLetters, Letter, LetterLimit
from rein_bus.errors import BusFenced, BusTransient, FatalError
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_bus.ports import Assigned, Batch, Bus, Place, Revoked

FINISHED = ev.RolloutFinished


def finished(group: int) -> ev.RolloutFinished:
    return ev.RolloutFinished(identity=pb.Identity(run="r", task="t", group=f"r.g{group}", attempt=1))


def test_the_memory_bus_is_a_bus() -> None:
    bus: Bus = MemoryBus(MemoryBroker())
    assert bus is not None


async def test_redeliver_hands_every_record_out_twice() -> None:
    broker = MemoryBroker()
    broker.faults.redeliver = True
    async with MemoryBus(broker) as bus, bus.work(FINISHED, group="grader") as work:
        await bus.publish(finished(1), finished(2))
        taken = [await work.take() for _ in range(4)]
    assert len({record.place for record in taken}) == 2


async def test_a_forced_rebalance_brings_unfinished_records_back() -> None:
    broker = MemoryBroker()
    async with MemoryBus(broker) as bus, bus.work(FINISHED, group="grader") as work:
        await bus.publish(finished(1), finished(1))
        first, second = await work.take(), await work.take()
        await work.done(first)
        broker.rebalance("grader")
        assert await work.take() == second


async def test_a_refused_publish_writes_nothing() -> None:
    broker = MemoryBroker()
    broker.faults.refuse_publish = True
    async with MemoryBus(broker) as bus:
        with pytest.raises(BusTransient):
            await bus.publish(finished(1))
        async with bus.follow(FINISHED) as follower:
            assert follower.has_caught_up()


async def test_a_delayed_publish_is_seen_once_it_is_acknowledged() -> None:
    broker = MemoryBroker()
    broker.faults.publish_delay_s = 0.05
    async with MemoryBus(broker) as bus, bus.work(FINISHED, group="grader") as work:
        publishing = asyncio.ensure_future(bus.publish(finished(1)))
        taking = asyncio.ensure_future(work.take())
        await asyncio.wait({publishing, taking}, return_when=asyncio.FIRST_COMPLETED)
        assert publishing.done()
        await taking


async def test_a_handle_that_lost_its_connection_lost_its_partitions_until_it_is_back() -> None:
    broker = MemoryBroker()
    async with MemoryBus(broker) as bus, MemoryBus(broker) as other, bus.work(FINISHED, group="grader") as work:
        await other.publish(finished(1))
        record = await work.take()
        bus.lose_connection()
        with pytest.raises(BusTransient):
            await bus.publish(finished(2))
        async with other.work(FINISHED, group="grader") as second:
            assert await second.take() == record
            await work.done(record)  # no longer ours: harmless
        bus.restore_connection()
        assert await work.take() == record


async def test_a_commit_that_fails_takes_the_partition_anew() -> None:
    broker = MemoryBroker()
    async with MemoryBus(broker) as bus, bus.transact(FINISHED, group="assembler") as session:
        await bus.publish(finished(1))
        async for event in session:
            if isinstance(event, Batch):
                batch = event
                break
        broker.faults.refuse_publish = True
        with pytest.raises(BusFenced):
            await session.commit(batch, outputs=[])
        broker.faults.refuse_publish = False
        events = [await anext(aiter(session)) for _ in range(3)]
        assert events == [Revoked(batch.partition), Assigned(batch.partition), batch]


async def test_a_dead_letter_that_cannot_be_written_is_fatal() -> None:
    broker = MemoryBroker()
    async with MemoryBus(broker) as bus, bus.work(FINISHED, group="grader") as work:
        await bus.publish(finished(1))
        record = await work.take()
        broker.faults.refuse_publish = True
        with pytest.raises(FatalError, match="could not be written, so grader stops before it"):
            await bus.dead_letter(record, failure=pb.Failure(code="x"), service="grader")


async def test_dead_letters_spread_over_time_are_no_flood() -> None:
    written: list[object] = []
    now_s = [0.0]

    async def publish(message: object) -> None:
        written.append(message)

    letters = DeadLetters(publish, limit=LetterLimit(max_letters=2, window_s=10), monotonic=lambda: now_s[0])
    letter = Letter("rein.rollout.finished.v1", Place(FINISHED, 0, 0), b"k", b"v" * 300_000, "grader", pb.Failure())
    for _ in range(5):
        await letters.write(letter)
        now_s[0] += 6
    await letters.write(letter)
    with pytest.raises(FatalError, match="gave up 3 records within 10 s"):
        await letters.write(letter)
    assert len(written) == 7
    assert all(isinstance(one, ev.DeadLetterRecorded) and len(one.value) == 256 * 1024 for one in written)
