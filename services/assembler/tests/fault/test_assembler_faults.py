"""On a bus: whatever crashes, moves or comes twice, each group ends once and its arrays are the same bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_assembler.adapters.arrays import BlobArrays
from rein_assembler.ports import Arrays
from rein_assembler.service import LOOK_S, Assembler
from rein_blobs import BlobStore
from rein_bus.codec import partition_of
from rein_bus.ports import Bus
from rein_bus.testing import Cluster, KafkaCluster, MemoryCluster
from rein_service.clock import Clock, FakeClock
from rein_service.testing import eventually
from rein_tokens import TurnArrays, spill, unpack

Events = list[ev.GroupOpened | ev.TurnCaptured | ev.RolloutFinished | ev.RolloutGraded]


def story(number: int, *, num_turns: int = 2) -> Events:
    """A group of one rollout that ends well."""
    who = pb.Identity(run="r", task="t", group=f"r.g{number}", attempt=1)
    turns = [
        ev.TurnCaptured(
            identity=who,
            turn=index,
            parent_turn=index - 1 if index else None,
            prompt_ids=[number, index],
            num_prompt_tokens=3 * index + 2,
            sampled_ids=[9],
            logprobs=[-0.5],
            versions=[ev.VersionSpan(version=1, start=0, end=1)],
            is_trainable=True,
        )
        for index in range(num_turns)
    ]
    return [
        ev.GroupOpened(group=who, size=1, min_size=1, purpose=pb.PURPOSE_TRAIN),
        *turns,
        ev.RolloutFinished(identity=who, harness="null", num_turns=num_turns),
        ev.RolloutGraded(identity=who, reward=1.0, num_turns=num_turns),
    ]


class Shelf:
    """Arrays in memory; a test may let a put fail after it took effect, or hold it up."""

    def __init__(self) -> None:
        self.store = BlobStore("memory://assembler-faults")
        self.is_broken = False
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.num_puts = 0

    async def put(self, data: bytes) -> pb.BlobRef:
        ref = await self.store.put(data)
        self.num_puts += 1
        await self.is_open.wait()
        if self.is_broken:
            raise ConnectionResetError("killed between blob and commit (a test's doing)")
        return ref

    async def of_turn(self, ref: pb.BlobRef) -> TurnArrays | None:
        return await BlobArrays(self.store, clock=FakeClock()).of_turn(ref)


class Ends:
    """Every GroupAssembled that a stranger sees."""

    def __init__(self) -> None:
        self.events: list[ev.GroupAssembled] = []

    def names(self) -> list[str]:
        return sorted(event.group.group for event in self.events)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "kafka":
        return KafkaCluster(request.getfixturevalue("kafka_settings"))
    return MemoryCluster()


@pytest.fixture
async def bus(cluster: Cluster) -> AsyncIterator[Bus]:
    async with cluster.connect() as bus:
        yield bus


@pytest.fixture
async def ends(bus: Bus) -> AsyncIterator[Ends]:
    async with watched(bus) as seen:
        yield seen


@asynccontextmanager
async def watched(bus: Bus) -> AsyncIterator[Ends]:
    seen = Ends()

    async def read() -> None:
        async with bus.follow(ev.GroupAssembled) as follower:
            async for record in follower:
                assert isinstance(record.message, ev.GroupAssembled)
                seen.events.append(record.message)

    task = asyncio.create_task(read())
    yield seen
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@asynccontextmanager
async def running(
    cluster: Cluster, arrays: Arrays, *, clock: Clock | None = None, checkpoint_records: int = 1000
) -> AsyncIterator[asyncio.Task[None]]:
    """An assembler at work; leaving the block kills it without a drain."""
    async with cluster.connect() as bus:
        assembler = Assembler(
            bus=bus,
            arrays=arrays,
            clock=clock or FakeClock(),
            unopened_limit_s=60,
            checkpoint_records=checkpoint_records,
        )
        task = asyncio.create_task(assembler.run(asyncio.Event()))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def arrived(ends: Ends, *names: str) -> None:
    await eventually(lambda: ends.names() == sorted(names), within_s=30)


async def test_every_group_ends_once_and_its_rows_are_in_the_store(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    async with running(cluster, shelf):
        await bus.publish(*(event for number in range(12) for event in story(number)))
        await arrived(ends, *(f"r.g{number}" for number in range(12)))
    for event in ends.events:
        (row,) = unpack(await shelf.store.get(event.arrays)).rows
        assert row.token_ids.tolist() == [int(event.group.group[3:]), 0, 9, int(event.group.group[3:]), 1, 9]
        assert event.state == ev.GROUP_STATE_READY


async def test_a_crash_between_blob_and_commit_ends_the_group_once_with_the_same_bytes(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    shelf.is_broken = True
    async with running(cluster, shelf) as task:
        await bus.publish(*story(0))
        await asyncio.wait([task], timeout=30)
        with pytest.raises(ExceptionGroup):
            await task
    shelf.is_broken = False
    async with running(cluster, shelf):
        await bus.publish(*story(1))
        await arrived(ends, "r.g0", "r.g1")
    assert shelf.num_puts == 3


async def test_a_restart_in_the_middle_of_a_group_reads_its_beginning_again(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    early, late = story(0), story(1)
    async with running(cluster, shelf, checkpoint_records=1):
        await bus.publish(*early[:2], *late)
        await arrived(ends, "r.g1")
    async with running(cluster, shelf):
        await bus.publish(*early[2:])
        await arrived(ends, "r.g0", "r.g1")
    assert {member.num_turns for event in ends.events for member in event.members} == {2}


async def test_events_of_a_group_that_has_ended_are_ignored_also_by_the_next_instance(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    async with running(cluster, shelf):
        await bus.publish(*story(0))
        await arrived(ends, "r.g0")
        await bus.publish(*story(0))
    async with running(cluster, shelf):
        await bus.publish(*story(0), *story(1))
        await arrived(ends, "r.g0", "r.g1")


async def test_a_second_instance_takes_partitions_over_and_no_group_ends_twice(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    stories = [story(number) for number in range(24)]
    async with running(cluster, shelf, checkpoint_records=5):
        await bus.publish(*(event for each in stories for event in each[:3]))
        async with running(cluster, shelf, checkpoint_records=5):
            await bus.publish(*(event for each in stories[:12] for event in each[3:]))
            await arrived(ends, *(f"r.g{number}" for number in range(12)))
        await bus.publish(*(event for each in stories[12:] for event in each[3:]))
        await arrived(ends, *(f"r.g{number}" for number in range(24)))


async def test_an_instance_that_lost_its_partition_while_it_wrote_a_blob_commits_nothing(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    """Six others join while the first is stuck; on Kafka it keeps one partition of six, which may be this one."""
    number = next(each for each in range(99) if partition_of(f"r.g{each}", num_partitions=6) == 3)
    slow = Shelf()
    slow.is_open.clear()
    async with running(cluster, slow) as zombie, AsyncExitStack() as others:
        await bus.publish(*story(number))
        await eventually(lambda: slow.num_puts == 1, within_s=30)
        for _ in range(6):
            await others.enter_async_context(running(cluster, shelf))
        with suppress(AssertionError):
            await eventually(ends.names, within_s=5)
        slow.is_open.set()
        await bus.publish(*story(number + 1))
        await arrived(ends, f"r.g{number}", f"r.g{number + 1}")
        assert not zombie.done()
    if isinstance(cluster, MemoryCluster):
        assert (slow.num_puts, shelf.num_puts) == (1, 2)


async def test_a_large_turn_is_read_from_the_store_and_one_that_is_gone_is_set_aside(
    cluster: Cluster, bus: Bus, ends: Ends, shelf: Shelf
) -> None:
    events = story(0)
    for turn in events[1:3]:
        assert isinstance(turn, ev.TurnCaptured)
        data = spill(prompt_ids=turn.prompt_ids, sampled_ids=turn.sampled_ids, logprobs=turn.logprobs)
        turn.arrays.CopyFrom(await shelf.store.put(data))
        del turn.prompt_ids[:], turn.sampled_ids[:], turn.logprobs[:]
    assert isinstance(events[2], ev.TurnCaptured)
    events[2].arrays.sha256 = "0" * 64
    async with running(cluster, shelf):
        await bus.publish(*events)
        await arrived(ends, "r.g0")
    (member,) = ends.events[0].members
    assert (member.num_turns, member.num_trainable_tokens) == (2, 1)


async def test_a_commit_that_the_brokers_refuse_is_made_again_from_the_checkpoint(shelf: Shelf) -> None:
    cluster = MemoryCluster()
    shelf.is_open.clear()
    async with cluster.connect() as bus, watched(bus) as ends, running(cluster, shelf):
        await bus.publish(*story(0))
        await eventually(lambda: shelf.num_puts == 1)
        cluster.broker.faults.refuse_publish = True
        shelf.is_open.set()
        await eventually(lambda: shelf.num_puts > 2)
        assert ends.names() == []
        cluster.broker.faults.refuse_publish = False
        await arrived(ends, "r.g0")


async def test_a_group_that_is_never_opened_is_reported(shelf: Shelf) -> None:
    cluster, clock = MemoryCluster(), FakeClock()
    async with (
        cluster.connect() as bus,
        running(cluster, shelf, clock=clock),
        bus.follow(ev.AlertRaised) as follower,
    ):
        await bus.publish(story(0)[1])
        for _ in range(4):
            await clock.advance(LOOK_S)
        async with asyncio.timeout(5):
            alert = (await anext(aiter(follower))).message
    assert isinstance(alert, ev.AlertRaised)
    assert (alert.run, alert.code, alert.severity) == ("r", "group.never_opened", ev.SEVERITY_WARNING)


async def test_draining_ends_the_loop(shelf: Shelf) -> None:
    cluster, draining = MemoryCluster(), asyncio.Event()
    async with cluster.connect() as bus, watched(bus) as ends:
        assembler = Assembler(bus=bus, arrays=shelf, clock=FakeClock(), unopened_limit_s=60, checkpoint_records=1000)
        task = asyncio.create_task(assembler.run(draining))
        await bus.publish(*story(0))
        await arrived(ends, "r.g0")
        draining.set()
        await asyncio.wait_for(task, timeout=5)
