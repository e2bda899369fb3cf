"""Pytest fixtures on a real broker: a plugin, loaded by the checkout's conftest.py for the tests of every package.

One broker per test session, on free ports, in a temporary folder; each test gets topics under a prefix of its own.
Where no test asks for it, no broker starts. `MemoryCluster` and `KafkaCluster` let one test run on both buses.
"""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import pytest
from aiokafka import AIOKafkaProducer
from google.protobuf.message import Message

from rein_bus.codec import TYPE_HEADER, partition_of
from rein_bus.deadletters import LETTER_LIMIT, LetterLimit
from rein_bus.kafka import KafkaBus
from rein_bus.localbroker import LocalBroker, fetch_jars, free_ports
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker, Stored
from rein_bus.preflight import drop_topics, preflight
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import TOPICS, Topic, topic_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka", metavar="HOST:PORT", help="use this cluster instead of starting a broker")


@pytest.fixture(scope="session")
def kafka_servers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of the session's broker."""
    existing = pytestconfig.getoption("--kafka")
    if isinstance(existing, str):
        yield existing
        return
    jars = pytestconfig.rootpath / "var" / "kafka" / "libs"
    fetch_jars(pom=pytestconfig.rootpath / "deploy" / "kafka" / "pom.xml", into=jars)
    port, controller_port = free_ports(2)
    home = tmp_path_factory.mktemp("kafka")
    broker = LocalBroker(home, port=port, controller_port=controller_port, jars=jars, is_tied=True)
    broker.start()
    try:
        yield broker.servers
    finally:
        broker.stop()


@pytest.fixture
def kafka_topics() -> Sequence[Topic]:
    """The topics made for a test; a package whose tests need few overrides this, which is quicker."""
    return TOPICS


@pytest.fixture
async def kafka_settings(kafka_servers: str, kafka_topics: Sequence[Topic]) -> AsyncIterator[KafkaSettings]:
    """Settings with a prefix of their own, the topics made; quick to notice a dead member."""
    settings = KafkaSettings(servers=kafka_servers, prefix=f"test-{uuid.uuid4().hex[:12]}", session_timeout_s=6.0)
    await preflight(settings, topics=kafka_topics)
    yield settings
    await drop_topics(settings, topics=kafka_topics)


class Cluster(Protocol):
    """What the contract needs beside the bus itself."""

    def connect(self, *, letter_limit: LetterLimit = LETTER_LIMIT) -> KafkaBus | MemoryBus: ...

    async def plant(self, message: type[Message], *, key: str, value: bytes, type_name: str) -> int:
        """Write a record past the bus; its offset."""


class MemoryCluster:
    def __init__(self) -> None:
        self.broker = MemoryBroker()

    def connect(self, *, letter_limit: LetterLimit = LETTER_LIMIT) -> MemoryBus:
        return MemoryBus(self.broker, letter_limit=letter_limit)

    async def plant(self, message: type[Message], *, key: str, value: bytes, type_name: str) -> int:
        partition = partition_of(key, num_partitions=topic_of(message).partitions)
        record = Stored(key, value, ((TYPE_HEADER, type_name.encode()),), 0)
        return self.broker.plant(message, partition=partition, record=record)


class KafkaCluster:
    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings

    def connect(self, *, letter_limit: LetterLimit = LETTER_LIMIT) -> KafkaBus:
        return KafkaBus(self.settings, letter_limit=letter_limit)

    async def plant(self, message: type[Message], *, key: str, value: bytes, type_name: str) -> int:
        async with AIOKafkaProducer(bootstrap_servers=self.settings.servers) as producer:
            topic = topic_of(message).name(self.settings.prefix)
            headers = [(TYPE_HEADER, type_name.encode())]
            written = await producer.send_and_wait(topic, value, key=key.encode(), headers=headers)
        return int(written.offset)
