"""The few topics the bus's own tests write to."""

from collections.abc import Sequence

import pytest

from rein.v1 import events_pb2 as ev
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
