"""What the bus costs over bare aiokafka: events per second, both in one run, on a broker of its own.

The bare client does the same work without Rein's part: idempotent and acknowledged sends, fetches, one commit per
fetch, transactions; it neither encodes nor decodes, checks no size, writes no headers and tracks no offsets. Rounds of
the two alternate; the best of each counts. `--kafka HOST:PORT` uses a cluster that runs.
"""

import argparse
import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.kafka import KafkaBus
from rein_bus.kafka_client import MAX_RECORD_BYTES
from rein_bus.localbroker import LocalBroker, fetch_jars, free_ports
from rein_bus.ports import Batch
from rein_bus.preflight import drop_topics, preflight
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of

ROOT = Path(__file__).resolve().parents[2]
NUM_EVENTS = 6000
NUM_TOGETHER = 200
ROUNDS = 3
TURNS = topic_of(ev.TurnCaptured)
OUTPUTS = topic_of(ev.GroupAssembled)

#: The least of the bare client's rate that must be left. `transact` also opens a producer for each partition, once.
LIMITS = {"publish": 0.3, "follow": 0.2, "work": 0.1, "transact": 0.1}


def turn(number: int) -> ev.TurnCaptured:
    """About 1 KB, as a turn of 60 sampled tokens is."""
    return ev.TurnCaptured(
        identity=pb.Identity(run="bench", task="t", group=f"bench.g{number % 64}", member=number, attempt=1),
        turn=number,
        prompt_ids=range(1000, 1120),
        sampled_ids=range(2000, 2060),
        logprobs=[-0.5] * 60,
        dialect="openai.chat",
    )


class Bare:
    """aiokafka and nothing else."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = TURNS.name(settings.prefix)
        self._records = [(f"bench.g{n % 64}".encode(), turn(n).SerializeToString()) for n in range(NUM_EVENTS)]

    async def publish(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._settings.servers, enable_idempotence=True, max_batch_size=MAX_RECORD_BYTES
        ) as producer:
            for start in range(0, NUM_EVENTS, NUM_TOGETHER):
                together = self._records[start : start + NUM_TOGETHER]
                sent = [await producer.send(self._topic, value, key=key) for key, value in together]
                await asyncio.gather(*sent)

    async def follow(self) -> None:
        async with AIOKafkaConsumer(bootstrap_servers=self._settings.servers, **self._reading()) as consumer:
            consumer.assign([TopicPartition(self._topic, number) for number in range(TURNS.partitions)])
            await consumer.seek_to_beginning()
            num_read = 0
            while num_read < NUM_EVENTS:
                fetched = await consumer.getmany(timeout_ms=500)
                num_read += sum(map(len, fetched.values()))

    async def work(self) -> None:
        async with self._member() as consumer:
            num_read = 0
            while num_read < NUM_EVENTS:
                fetched = await consumer.getmany(timeout_ms=500, max_records=NUM_TOGETHER)
                num_read += sum(map(len, fetched.values()))
                await consumer.commit()

    async def transact(self) -> None:
        group = f"bare-{uuid.uuid4().hex}"
        async with (
            AIOKafkaProducer(bootstrap_servers=self._settings.servers, transactional_id=group) as producer,
            self._member(group) as consumer,
        ):
            num_read = 0
            while num_read < NUM_EVENTS:
                for partition, records in (await consumer.getmany(timeout_ms=500, max_records=2000)).items():
                    async with producer.transaction():
                        await producer.send(OUTPUTS.name(self._settings.prefix), b"x", key=b"k")
                        await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, group)
                    num_read += len(records)

    def _member(self, group: str | None = None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._settings.servers,
            group_id=group or f"bare-{uuid.uuid4().hex}",
            partition_assignment_strategy=(RangePartitionAssignor,),
            enable_auto_commit=False,
            **self._reading(),
        )

    def _reading(self) -> dict[str, object]:
        return {
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "max_partition_fetch_bytes": MAX_RECORD_BYTES,
        }


class Rein:
    """The same through the bus."""

    def __init__(self, bus: KafkaBus) -> None:
        self._bus = bus
        self._messages = [turn(number) for number in range(NUM_EVENTS)]

    async def publish(self) -> None:
        for start in range(0, NUM_EVENTS, NUM_TOGETHER):
            await self._bus.publish(*self._messages[start : start + NUM_TOGETHER])

    async def follow(self) -> None:
        async with self._bus.follow(ev.TurnCaptured) as follower:
            records = aiter(follower)
            for _ in range(NUM_EVENTS):
                await anext(records)

    async def work(self) -> None:
        async with self._bus.work(ev.TurnCaptured, group=uuid.uuid4().hex) as work:
            for _ in range(0, NUM_EVENTS, NUM_TOGETHER):
                records = [await work.take() for _ in range(NUM_TOGETHER)]
                await asyncio.gather(*(work.done(record) for record in records))

    async def transact(self) -> None:
        async with self._bus.transact(ev.TurnCaptured, group=uuid.uuid4().hex) as session:
            num_read = 0
            async for event in session:
                if isinstance(event, Batch):
                    await session.commit(event, outputs=[ev.GroupAssembled(step=num_read)])
                    num_read += len(event.records)
                    if num_read >= NUM_EVENTS:
                        return


async def rate(act: Callable[[], Awaitable[None]]) -> float:
    """Events per second, opening and closing included."""
    began_s = time.perf_counter()
    await act()
    return NUM_EVENTS / (time.perf_counter() - began_s)


async def measure(servers: str) -> None:
    settings = KafkaSettings(servers=servers, prefix=f"bench-{uuid.uuid4().hex[:8]}")
    bare_settings = settings.model_copy(update={"prefix": f"{settings.prefix}-bare"})  # it writes what is no event
    for each in (settings, bare_settings):
        await preflight(each, topics=[TURNS, OUTPUTS])
    async with KafkaBus(settings) as bus:
        rein, bare = Rein(bus), Bare(bare_settings)
        for metric in LIMITS:
            rates: dict[object, float] = {rein: 0.0, bare: 0.0}
            for _ in range(1 if metric == "publish" else ROUNDS):
                for side in (bare, rein):
                    rates[side] = max(rates[side], await rate(getattr(side, metric)))
            report(metric, value=rates[rein], baseline=rates[bare])
    for each in (settings, bare_settings):
        await drop_topics(each, topics=[TURNS, OUTPUTS])


def report(metric: str, *, value: float, baseline: float) -> None:
    ratio = value / baseline
    line = {
        "bench": "bus",
        "metric": metric,
        "value": round(value),
        "unit": "events/s",
        "baseline": round(baseline),
        "ratio": round(ratio, 3),
        "limit": LIMITS[metric],
        "holds": ratio >= LIMITS[metric],
    }
    print(json.dumps(line), flush=True)


@contextmanager
def cluster(existing: str | None) -> Iterator[str]:
    if existing is not None:
        yield existing
        return
    jars = ROOT / "var" / "kafka" / "libs"
    fetch_jars(pom=ROOT / "deploy" / "kafka" / "pom.xml", into=jars)
    port, controller_port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalBroker(Path(folder), port=port, controller_port=controller_port, jars=jars)
        broker.start()
        try:
            yield broker.servers
        finally:
            broker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    with cluster(parser.parse_args().kafka) as servers:
        asyncio.run(measure(servers))
