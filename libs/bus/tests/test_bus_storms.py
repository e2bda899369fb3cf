"""Members that come and go while records flow: nothing is lost, and no transaction's output is doubled."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.errors import BusFenced
from rein_bus.ports import Batch, Bus

FINISHED = ev.RolloutFinished


def finished(number: int) -> ev.RolloutFinished:
    """The `number`-th record, over 30 keys."""
    return ev.RolloutFinished(identity=pb.Identity(run="r", task="t", group=f"r.g{number % 30}", member=number))


async def test_members_that_come_and_go_under_load_lose_nothing(bus: Bus, other_bus: Bus) -> None:
    published: set[int] = set()
    done: set[int] = set()
    is_over = asyncio.Event()
    room = asyncio.Semaphore(60)

    async def load() -> None:
        """Until the others have come and gone; at most 60 records wait."""
        for number in itertools.count():
            await room.acquire()
            if is_over.is_set():
                return
            await bus.publish(finished(number))
            published.add(number)

    async def toil(member: Bus, *, is_enough: Callable[[int], bool]) -> None:
        async with member.work(FINISHED, group="grader") as work:
            num_records = 0
            while not is_enough(num_records):
                taking = asyncio.ensure_future(work.take())
                await asyncio.wait({taking}, timeout=0.2)
                if not taking.done():
                    taking.cancel()
                    continue
                record = await taking
                await work.done(record)
                assert isinstance(record.message, FINISHED)
                if record.message.identity.member not in done:
                    room.release()
                done.add(record.message.identity.member)
                num_records += 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        tasks.create_task(toil(bus, is_enough=lambda num: is_over.is_set() and done >= published))
        for _ in range(2):
            await toil(other_bus, is_enough=lambda num: num >= 40)
        is_over.set()
        room.release()

    assert done == published


async def process(bus: Bus, *, num_batches: int | None) -> None:
    """One output for every record; a fenced batch is forgotten, as the assembler does. None = until cancelled."""
    async with bus.transact(FINISHED, group="assembler") as session:
        events = aiter(session)
        num_committed = 0
        while num_batches is None or num_committed < num_batches:
            event = await anext(events)
            if isinstance(event, Batch):
                try:
                    await session.commit(event, outputs=[output_of(record.message) for record in event.records])
                except BusFenced:
                    continue
                num_committed += 1


def output_of(message: Message) -> ev.GroupAssembled:
    assert isinstance(message, FINISHED)
    return ev.GroupAssembled(group=message.identity)


async def test_sessions_that_come_and_go_write_one_output_for_every_record(bus: Bus, other_bus: Bus) -> None:
    seen: Counter[int] = Counter()
    is_over = asyncio.Event()
    room = asyncio.Semaphore(60)

    async def load() -> int:
        """Until the others have come and gone; at most 60 records wait. How many there were."""
        for number in itertools.count():
            await room.acquire()
            await bus.publish(finished(number))
            if is_over.is_set():
                return number + 1
        raise AssertionError("unreachable")

    async def count() -> None:
        async with bus.follow(ev.GroupAssembled) as follower:
            async for record in follower:
                assert isinstance(record.message, ev.GroupAssembled)
                seen[record.message.group.member] += 1
                room.release()
                if loading.done() and len(seen) == loading.result():
                    return

    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        loading = tasks.create_task(load())
        counting = tasks.create_task(count())
        steady = tasks.create_task(process(bus, num_batches=None))
        for _ in range(3):
            await process(other_bus, num_batches=2)
        is_over.set()
        await counting
        steady.cancel()

    assert set(seen.values()) == {1}
