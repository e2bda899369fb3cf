"""The assembler's loop: fold the joined topics, and write the end of each settled group in one transaction.

A group's arrays are in the blob store before its event is written; event, checkpoint and positions are one
transaction, so a group ends once whatever crashes where. Nothing is committed without a checkpoint: positions alone
would skip what open groups still need. The assembler is the arbiter of every rollout's end; it does not retry, fence
or grade.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein_assembler import metrics
from rein_assembler.domain.ending import ending_of
from rein_assembler.domain.group import Event, Group, HeldTurn
from rein_assembler.domain.partition import Partition
from rein_assembler.ports import Arrays
from rein_bus.errors import BusFenced
from rein_bus.ports import Assigned, Batch, Bus, Record, Revoked, Transaction
from rein_contracts.ids import run_of_group
from rein_contracts.topics import JOINED, TOPICS, topic_of
from rein_service.clock import Clock
from rein_tokens import Turn, turn_of

GROUP = "assembler"

#: How often groups that were never opened are looked for, seconds.
LOOK_S = 30.0

_MESSAGES = {topic.noun_event: topic.message for topic in TOPICS}

log = logging.getLogger(__name__)


class Assembler:
    """One session over a share of the partitions."""

    def __init__(
        self, *, bus: Bus, arrays: Arrays, clock: Clock, unopened_limit_s: float, checkpoint_records: int
    ) -> None:
        self._bus = bus
        self._arrays = arrays
        self._clock = clock
        self._unopened_limit_s = unopened_limit_s
        self._checkpoint_records = checkpoint_records
        self._partitions: dict[int, Partition] = {}

    @property
    def num_open_groups(self) -> int:
        return sum(partition.num_open for partition in self._partitions.values())

    async def run(self, draining: asyncio.Event) -> None:
        """Work until `draining` is set."""
        async with self._bus.transact(*JOINED, group=GROUP) as session, asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_for_unopened())
            async for news in _until(draining, session):
                match news:
                    case Assigned():
                        await self._take(session, news.partition)
                    case Revoked():
                        self._partitions.pop(news.partition, None)
                    case Batch():
                        await self._handle(session, news)
                metrics.OPEN_GROUPS.set(self.num_open_groups)
            looking.cancel()

    async def _take(self, session: Transaction, number: int) -> None:
        """Restore a partition's state by reading again from its checkpoint."""
        newest = await self._bus.newest(ev.AssemblerCheckpoint, key=str(number))
        checkpoint = newest.message if newest is not None else None
        assert checkpoint is None or isinstance(checkpoint, ev.AssemblerCheckpoint)
        if checkpoint is not None:
            offsets = {_MESSAGES[topic]: offset for topic, offset in checkpoint.low_offsets.items()}
            try:
                await session.seek(number, offsets=offsets)
            except BusFenced:
                return  # lost again before it was ours; Revoked follows
        self._partitions[number] = Partition(number, checkpoint=checkpoint)
        log.info("partition.taken", extra={"partition": number, "has_checkpoint": checkpoint is not None})

    async def _handle(self, session: Transaction, batch: Batch) -> None:
        partition = self._partitions.get(batch.partition)
        if partition is None:
            return  # fenced; Revoked and Assigned follow
        for record in batch.records:
            self._apply(partition, record)
        outputs: list[Message] = [await self._end(group) for group in partition.settled()]
        for output in outputs:
            assert isinstance(output, ev.GroupAssembled)
            partition.end(output.group.group)
        if not outputs and partition.num_read < self._checkpoint_records:
            return
        try:
            await session.commit(batch, outputs=[*outputs, partition.checkpoint()])
        except BusFenced as error:
            metrics.FENCED.inc()
            log.warning("commit.fenced", extra={"partition": batch.partition, "reason": error.detail})
            self._partitions.pop(batch.partition, None)
            return
        for output in outputs:
            assert isinstance(output, ev.GroupAssembled)
            _report(output)

    def _apply(self, partition: Partition, record: Record[Message]) -> None:
        event = record.message
        assert isinstance(event, Event)
        topic = topic_of(type(event)).noun_event
        offset = record.place.offset
        ignored = partition.apply(event, topic=topic, offset=offset, now_s=self._clock.monotonic())
        if ignored is not None:
            metrics.IGNORED.labels(ignored.value).inc()
            extra = {"topic": topic, "offset": offset, "group": record.key, "reason": ignored.value}
            log.info("record.ignored", extra=extra)

    async def _end(self, group: Group) -> ev.GroupAssembled:
        """The group's end, its arrays stored."""
        turns = {
            member: {index: await self._turn(turn) for index, turn in settled.turns.items()}
            for member, settled in group.settled.items()
            if settled.reward is not None
        }
        ending = ending_of(group, turns=turns)
        for code, number in ending.flaws.items():
            metrics.FLAWED.labels(code).inc(number)
            log.warning("turns.set_aside", extra={"group": group.name, "code": code, "num_turns": number})
        if ending.arrays:
            ending.event.arrays.CopyFrom(await self._arrays.put(ending.arrays))
        ending.event.at.FromDatetime(self._clock.now())
        return ending.event

    async def _turn(self, held: HeldTurn) -> Turn:
        if isinstance(held, Turn):
            return held
        return turn_of(held, arrays=await self._arrays.of_turn(held.arrays))

    async def _look_for_unopened(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            for partition in list(self._partitions.values()):
                now_s = self._clock.monotonic()
                for group in partition.forget_unopened(now_s=now_s, limit_s=self._unopened_limit_s):
                    await self._report_unopened(group)

    async def _report_unopened(self, group: Group) -> None:
        metrics.UNOPENED.inc()
        detail = f"Events of group {group.name} came for {self._unopened_limit_s:g} s without its GroupOpened."
        log.error("group.never_opened", extra={"group": group.name, "detail": detail})
        alert = ev.AlertRaised(
            run=run_of_group(group.name), code="group.never_opened", detail=detail, severity=ev.SEVERITY_WARNING
        )
        alert.at.FromDatetime(self._clock.now())
        await self._bus.publish(alert)


def _report(event: ev.GroupAssembled) -> None:
    state = ev.GroupState.Name(event.state).removeprefix("GROUP_STATE_").lower()
    metrics.GROUPS.labels(state).inc()
    num_rewards = sum(member.HasField("reward") for member in event.members)
    extra = {"group": event.group.group, "state": state, "num_rewards": num_rewards, "reason": event.failure.code}
    log.info("group.assembled", extra=extra)


async def _until(draining: asyncio.Event, session: Transaction) -> AsyncIterator[Assigned | Batch | Revoked]:
    """What the session says, until `draining` is set."""
    stopping = asyncio.ensure_future(draining.wait())
    news = aiter(session)
    try:
        while not draining.is_set():
            following = asyncio.ensure_future(anext(news))
            try:
                await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not following.done():
                    following.cancel()
                    await asyncio.wait({following})
            if not following.cancelled():
                yield following.result()
    finally:
        stopping.cancel()
