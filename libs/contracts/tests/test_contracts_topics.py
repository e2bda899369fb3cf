"""The topic table: complete, keyed, and joined where the assembler needs it."""

import pytest
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_contracts.topics import JOINED, TOPICS, Key, key_of, topic_named, topic_of

IDENTITY = pb.Identity(run="demo", task="t", group="demo.g7", member=3, attempt=2)

#: Parts of events, not events.
PARTS = {
    "RunSpec",
    "HarnessShare",
    "EvalSpec",
    "Objective",
    "VersionSpan",
    "TestResult",
    "MemberOutcome",
    "SkippedGroup",
}


def test_every_event_message_has_exactly_one_topic() -> None:
    messages = set(ev.DESCRIPTOR.message_types_by_name) - PARTS
    carried = [topic.message.DESCRIPTOR.name for topic in TOPICS]
    assert sorted(carried) == sorted(messages)


def test_names_are_noun_event_and_version_under_a_prefix() -> None:
    assert topic_of(ev.TurnCaptured).name() == "rein.turn.captured.v1"
    assert topic_of(ev.TurnCaptured).name("lab") == "lab.turn.captured.v1"
    assert topic_named("turn.captured") is topic_of(ev.TurnCaptured)
    assert len({topic.noun_event for topic in TOPICS}) == len(TOPICS)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (ev.RunChanged(run="demo"), "demo"),
        (ev.GroupOpened(group=IDENTITY), "demo.g7"),
        (ev.RolloutRequested(identity=IDENTITY), "demo.g7/3"),
        (ev.RolloutFenced(identity=IDENTITY), "demo.g7"),
        (ev.RolloutLeased(identity=IDENTITY), "demo.g7/3"),
        (ev.RolloutFinished(identity=IDENTITY), "demo.g7"),
        (ev.TurnCaptured(identity=IDENTITY), "demo.g7"),
        (ev.FindingRecorded(identity=IDENTITY), "demo.g7"),
        (ev.RolloutGraded(identity=IDENTITY), "demo.g7"),
        (ev.GroupAssembled(group=IDENTITY), "demo.g7"),
        (ev.AssemblerCheckpoint(partition=4), "4"),
        (ev.PolicyPublished(run="demo"), "demo"),
        (ev.StepCompleted(run="demo"), "demo"),
        (ev.NodeReported(node="n1"), "n1"),
        (ev.AlertRaised(run="demo"), "demo"),
        (ev.DeadLetterRecorded(topic="rein.turn.captured.v1"), "rein.turn.captured.v1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else value,
)
def test_every_event_has_its_key(message: Message, key: str) -> None:
    assert key_of(message) == key


def test_what_is_joined_has_one_key_and_one_number_of_partitions() -> None:
    joined = [topic_of(message) for message in JOINED]
    assert {topic.key for topic in joined} == {Key.GROUP}
    assert len({topic.partitions for topic in joined}) == 1
    assert topic_of(ev.AssemblerCheckpoint).partitions == joined[0].partitions


def test_a_dead_letter_has_room_for_the_value_it_keeps() -> None:
    assert topic_of(ev.DeadLetterRecorded).max_bytes >= 256 * 1024 + 16 * 1024


def test_only_a_compacted_topic_keeps_the_newest_for_ever() -> None:
    for topic in TOPICS:
        assert not topic.is_compacted or topic.retention_s is None
