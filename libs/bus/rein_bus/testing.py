"""Pytest fixtures on a real broker: a plugin, loaded by the checkout's conftest.py for the tests of every package.

One broker per test session, on free ports, in a temporary folder; each test gets topics under a prefix of its own.
Where no test asks for it, no broker starts.
"""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from rein_bus.localbroker import LocalBroker, fetch_jars, free_ports
from rein_bus.preflight import drop_topics, preflight
from rein_bus.settings import KafkaSettings

_PREFIXES = itertools.count(1)


@pytest.fixture(scope="session")
def local_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """The session's broker, running."""
    jars = pytestconfig.rootpath / "var" / "kafka" / "libs"
    fetch_jars(pom=pytestconfig.rootpath / "deploy" / "kafka" / "pom.xml", into=jars)
    port, controller_port = free_ports(2)
    broker = LocalBroker(tmp_path_factory.mktemp("kafka"), port=port, controller_port=controller_port, jars=jars)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
async def kafka_settings(local_broker: LocalBroker) -> AsyncIterator[KafkaSettings]:
    """Settings with a prefix of their own, all topics created; quick to notice a dead member."""
    settings = KafkaSettings(servers=local_broker.servers, prefix=f"test{next(_PREFIXES)}", session_timeout_s=6.0)
    await preflight(settings)
    yield settings
    await drop_topics(settings)
