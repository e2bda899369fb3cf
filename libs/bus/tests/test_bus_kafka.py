"""What only a real broker can show: crashes inside a transaction, zombies, headers, a broker that hangs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.codec import SCHEMA_HEADER, TRACE_HEADER, TYPE_HEADER, encode, schema_digest
from rein_bus.errors import BusFenced, BusMisconfigured, BusTransient
from rein_bus.kafka import KafkaBus
from rein_bus.localbroker import free_ports
from rein_bus.ports import Assigned, Batch, Revoked, Transaction
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of

pytestmark = pytest.mark.kafka

FINISHED = ev.RolloutFinished
GROUP = pb.Identity(run="r", task="t", group="r.g1", member=0, attempt=1)


@pytest.fixture
async def bus(kafka_settings: KafkaSettings) -> AsyncIterator[KafkaBus]:
    async with KafkaBus(kafka_settings) as bus:
        yield bus


async def until(session: Transaction, wanted: type[Assigned | Batch | Revoked]) -> Assigned | Batch | Revoked:
    async with asyncio.timeout(60):
        async for event in session:
            if isinstance(event, wanted):
                return event
    raise AssertionError("the session ended")


async def next_batch(session: Transaction) -> Batch:
    batch = await until(session, Batch)
    assert isinstance(batch, Batch)
    return batch


async def visible(bus: KafkaBus) -> list[Message]:
    """What a reader that opens now sees before it has caught up."""
    found = []
    async with asyncio.timeout(60), bus.follow(ev.GroupAssembled) as follower:
        while not follower.has_caught_up():
            found.append((await anext(aiter(follower))).message)
    return found


async def outputs(bus: KafkaBus) -> list[Message]:
    """What readers see once all transactions before now have ended: a mark behind them shows it."""
    mark = ev.GroupAssembled(group=GROUP, max_version=10**6)
    await bus.publish(mark)
    found: list[Message] = []
    async with asyncio.timeout(60), bus.follow(ev.GroupAssembled) as follower:
        while mark not in found:
            found.append((await anext(aiter(follower))).message)
    return found[:-1]


@asynccontextmanager
async def predecessor(settings: KafkaSettings, *, partition: int) -> AsyncIterator[AIOKafkaProducer]:
    """An assembler's producer for that partition, in another process: begun, with an output sent, never committed."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.servers, transactional_id=f"{settings.prefix}-assembler-{partition}"
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        record = encode(ev.GroupAssembled(group=GROUP), prefix=settings.prefix)
        await producer.send_and_wait(
            record.topic.name(settings.prefix), record.value, key=record.key.encode(), headers=list(record.headers)
        )
        yield producer
    finally:
        await producer.stop()


async def test_a_crash_between_produce_and_commit_leaves_every_output_once(
    bus: KafkaBus, kafka_settings: KafkaSettings
) -> None:
    (place,) = await bus.publish(ev.RolloutFinished(identity=GROUP))
    async with predecessor(kafka_settings, partition=place.partition) as crashed:
        async with bus.transact(FINISHED, group="assembler") as session:
            batch = await next_batch(session)
            await session.commit(batch, outputs=[ev.GroupAssembled(group=GROUP)])

        with pytest.raises(KafkaError):  # it comes back to life: too late
            await crashed.commit_transaction()

    assert await outputs(bus) == [ev.GroupAssembled(group=GROUP)]


async def test_followers_see_no_output_of_an_open_or_aborted_transaction(
    bus: KafkaBus, kafka_settings: KafkaSettings
) -> None:
    async with predecessor(kafka_settings, partition=0) as producer:
        assert await visible(bus) == []
        await producer.abort_transaction()
    assert await outputs(bus) == []


async def test_a_fenced_session_is_told_and_takes_the_partition_anew(
    bus: KafkaBus, kafka_settings: KafkaSettings
) -> None:
    (place,) = await bus.publish(ev.RolloutFinished(identity=GROUP))
    async with bus.transact(FINISHED, group="assembler") as session:
        batch = await next_batch(session)
        async with predecessor(kafka_settings, partition=place.partition):
            with pytest.raises(BusFenced):
                await session.commit(batch, outputs=[ev.GroupAssembled(group=GROUP)])
            assert await until(session, Revoked) == Revoked(place.partition)
            assert await until(session, Assigned) == Assigned(place.partition)
            again = await next_batch(session)
            assert again.records == batch.records
            await session.commit(again, outputs=[ev.GroupAssembled(group=GROUP)])

    assert await outputs(bus) == [ev.GroupAssembled(group=GROUP)]


async def test_a_record_says_its_type_its_schema_and_its_trace(kafka_settings: KafkaSettings) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with KafkaBus(kafka_settings, trace=lambda: trace) as bus:
        await bus.publish(ev.RolloutFinished(identity=GROUP))

    topic = topic_of(FINISHED).name(kafka_settings.prefix)
    async with (
        asyncio.timeout(60),
        AIOKafkaConsumer(topic, bootstrap_servers=kafka_settings.servers, auto_offset_reset="earliest") as consumer,
    ):
        record = await consumer.getone()
    assert dict(record.headers) == {
        TYPE_HEADER: b"rein.v1.RolloutFinished",
        SCHEMA_HEADER: schema_digest("rein.v1.RolloutFinished").encode(),
        TRACE_HEADER: trace.encode(),
    }
    assert record.key == b"r.g1"


async def test_without_a_broker_opening_fails_with_its_address() -> None:
    (port,) = free_ports(1)
    with pytest.raises(BusTransient, match=rf"127\.0\.0\.1:{port}"):
        async with KafkaBus(KafkaSettings(servers=f"127.0.0.1:{port}", request_timeout_s=5.0)):
            pass


async def test_a_broker_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(BusTransient):
            async with KafkaBus(KafkaSettings(servers=f"127.0.0.1:{port}", request_timeout_s=0.5)):
                pass
        assert asyncio.get_running_loop().time() - began_s < 5


async def test_publishing_to_a_topic_that_was_never_made_says_so(kafka_settings: KafkaSettings) -> None:
    elsewhere = kafka_settings.model_copy(update={"prefix": "nowhere"})
    async with KafkaBus(elsewhere) as bus:
        with pytest.raises(BusMisconfigured, match=r"know no topic nowhere\.rollout\.finished\.v1"):
            await bus.publish(ev.RolloutFinished(identity=GROUP))


async def test_a_follower_that_wants_an_offset_the_topic_never_had_is_misconfigured(bus: KafkaBus) -> None:
    with pytest.raises(BusMisconfigured, match="emptied or made anew"):
        async with bus.follow(FINISHED, start={(FINISHED, 0): 5}):
            pass


async def test_a_member_that_dies_is_replaced_and_its_unfinished_work_returns(kafka_settings: KafkaSettings) -> None:
    """Dies without a word: its heartbeats end, its membership is not given back."""
    async with KafkaBus(kafka_settings) as bus:
        await bus.publish(ev.RolloutFinished(identity=GROUP))
        topic = topic_of(FINISHED).name(kafka_settings.prefix)
        silent = AIOKafkaConsumer(
            topic,
            bootstrap_servers=kafka_settings.servers,
            group_id=f"{kafka_settings.prefix}-grader",
            partition_assignment_strategy=(RangePartitionAssignor,),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=2000,
            heartbeat_interval_ms=500,
            group_instance_id="runner-1",  # a member with an id of its own does not leave its group when it stops
        )
        await silent.start()
        await silent.getone()
        await silent.stop()
        async with asyncio.timeout(60), bus.work(FINISHED, group="grader") as work:
            assert (await work.take()).message == ev.RolloutFinished(identity=GROUP)
