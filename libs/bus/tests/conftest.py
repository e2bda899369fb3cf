"""The two clusters the bus's tests run on, and the few topics they write to."""

from collections.abc import AsyncIterator, Sequence

import pytest

from rein.v1 import events_pb2 as ev
from rein_bus.ports import Bus
from rein_bus.testing import Cluster, KafkaCluster, MemoryCluster
from rein_contracts.topics import Topic, topic_of

MESSAGES = (
    ev.RolloutRequested,
    ev.RolloutFinished,
    ev.RolloutGraded,
    ev.GroupAssembled,
    ev.AssemblerCheckpoint,
    ev.PolicyPublished,
    ev.DeadLetterRecorded,
)


@pytest.fixture
def kafka_topics() -> Sequence[Topic]:
    return [topic_of(message) for message in MESSAGES]


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
async def other_bus(cluster: Cluster) -> AsyncIterator[Bus]:
    async with cluster.connect() as bus:
        yield bus
