"""Reading topics from the command line: what concerns a run, a task or a group, to the end or as it comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from google.protobuf.message import Message

from rein_bus.kafka import KafkaBus
from rein_bus.ports import Bus, Record, Start
from rein_bus.settings import KafkaSettings
from rein_cli.wanted import Filter


def open_bus(settings: KafkaSettings) -> AbstractAsyncContextManager[Bus]:
    return KafkaBus(settings)


async def to_end(bus: Bus, *messages: type[Message], wanted: Filter) -> list[Record[Message]]:
    """Every record there was when reading began."""
    found: list[Record[Message]] = []
    async with bus.follow(*messages, start=Start.EARLIEST) as follower:

        async def collect() -> None:
            async for record in follower:
                if wanted.passes(record.message):
                    found.append(record)  # noqa: PERF401 - a comprehension would keep nothing when cancelled

        async with asyncio.TaskGroup() as tasks:
            collecting = tasks.create_task(collect())
            ending = tasks.create_task(follower.caught_up())
            await asyncio.wait([collecting, ending], return_when=asyncio.FIRST_COMPLETED)
            collecting.cancel()
    return found


async def as_it_comes(
    bus: Bus, *messages: type[Message], start: Start, wanted: Filter
) -> AsyncIterator[Record[Message]]:
    """Records without end."""
    async with bus.follow(*messages, start=start) as follower:
        async for record in follower:
            if wanted.passes(record.message):
                yield record
