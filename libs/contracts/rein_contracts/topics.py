"""The one table of topics: it creates them, checks a cluster against them, documents them and decodes their records.

A topic carries one message type, so code names topics by message type. Names are `<prefix>.<noun>.<event>.v1`; the
prefix is a setting (default `rein`), so that several deployments can share a cluster. Topics that are joined
(`JOINED`) share the group as key and one partition count: whoever owns partition p sees whole groups.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein_contracts.ids import rollout_id

KIB = 1024
MIB = 1024 * KIB
DAY_S = 24 * 3600

#: Partitions of every topic that scales; a co-partitioned join needs the same count everywhere.
PARTITIONS = 6


class Key(Enum):
    """What a topic is keyed by."""

    RUN = "run"
    GROUP = "group"
    ROLLOUT = "rollout"
    NODE = "node"
    PARTITION = "partition"
    SOURCE = "source topic"


@dataclass(frozen=True, slots=True)
class Topic:
    """One row of the table."""

    noun_event: str
    message: type[Message]
    key: Key
    partitions: int
    owner: str
    retention_s: int | None
    """Seconds records are kept; None = for ever."""
    max_bytes: int
    """Largest record value."""
    is_compacted: bool = False

    def name(self, prefix: str = "rein") -> str:
        return f"{prefix}.{self.noun_event}.v1"


_KEYS: dict[Key, Callable[[Any], str]] = {
    Key.RUN: lambda m: m.run,
    Key.GROUP: lambda m: (m.group if hasattr(m, "group") else m.identity).group,
    Key.ROLLOUT: lambda m: str(rollout_id(m.identity)),
    Key.NODE: lambda m: m.node,
    Key.PARTITION: lambda m: str(m.partition),
    Key.SOURCE: lambda m: m.topic,
}

_WEEK = 7 * DAY_S

TOPICS: tuple[Topic, ...] = (
    Topic("run.changed", ev.RunChanged, Key.RUN, 1, "dispatcher", None, 64 * KIB),
    Topic("group.opened", ev.GroupOpened, Key.GROUP, PARTITIONS, "dispatcher", _WEEK, 16 * KIB),
    Topic("rollout.requested", ev.RolloutRequested, Key.ROLLOUT, PARTITIONS, "dispatcher", _WEEK, 16 * KIB),
    Topic("rollout.fenced", ev.RolloutFenced, Key.GROUP, PARTITIONS, "dispatcher", _WEEK, 16 * KIB),
    Topic("rollout.leased", ev.RolloutLeased, Key.ROLLOUT, PARTITIONS, "runner", _WEEK, 4 * KIB),
    Topic("rollout.finished", ev.RolloutFinished, Key.GROUP, PARTITIONS, "runner", _WEEK, 64 * KIB),
    Topic("turn.captured", ev.TurnCaptured, Key.GROUP, PARTITIONS, "gateway", _WEEK, 512 * KIB),
    Topic("finding.recorded", ev.FindingRecorded, Key.GROUP, PARTITIONS, "gateway", _WEEK, 16 * KIB),
    Topic("rollout.graded", ev.RolloutGraded, Key.GROUP, PARTITIONS, "grader", _WEEK, 256 * KIB),
    Topic("group.assembled", ev.GroupAssembled, Key.GROUP, PARTITIONS, "assembler", _WEEK, 256 * KIB),
    Topic("assembler.checkpointed", ev.AssemblerCheckpoint, Key.PARTITION, PARTITIONS, "assembler", None, MIB, True),
    Topic("policy.published", ev.PolicyPublished, Key.RUN, 1, "learner", None, 4 * KIB),
    Topic("step.completed", ev.StepCompleted, Key.RUN, 1, "learner", None, 256 * KIB),
    Topic("node.reported", ev.NodeReported, Key.NODE, 1, "inference", DAY_S, 16 * KIB),
    Topic("alert.raised", ev.AlertRaised, Key.RUN, 1, "observer", _WEEK, 16 * KIB),
    Topic("deadletter.recorded", ev.DeadLetterRecorded, Key.SOURCE, 1, "bus", 30 * DAY_S, 512 * KIB),
)

#: The assembler's inputs: same key, same partition count.
JOINED: tuple[type[Message], ...] = (
    ev.GroupOpened,
    ev.RolloutFenced,
    ev.RolloutFinished,
    ev.TurnCaptured,
    ev.RolloutGraded,
)

_BY_MESSAGE = {topic.message: topic for topic in TOPICS}
_BY_NOUN_EVENT = {topic.noun_event: topic for topic in TOPICS}


def topic_of(message: type[Message]) -> Topic:
    """The topic that carries `message`. Raises KeyError for a message no topic carries."""
    return _BY_MESSAGE[message]


def topic_named(noun_event: str) -> Topic:
    """The topic called `noun_event`, e.g. "turn.captured". Raises KeyError."""
    return _BY_NOUN_EVENT[noun_event]


def key_of(message: Message) -> str:
    """The record key of `message`."""
    topic = _BY_MESSAGE[type(message)]
    return _KEYS[topic.key](message)
