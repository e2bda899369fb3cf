"""Does the cluster fit? Asked once, before a stack or a service starts.

Creates the topics of the table that are missing, then compares what exists with the table: partitions, clean-up,
retention, and every size limit a record meets on its way (topic table, producer, topic, consumer). Tries, rather than
reads from a version number, whether the brokers do idempotence and transactions. Changes nothing that exists. Raises
BusMisconfigured naming all that does not fit, or BusTransient when no broker answers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import NoError, TopicAlreadyExistsError, for_code

from rein_bus.codec import OVERHEAD_BYTES
from rein_bus.errors import BusMisconfigured, BusTransient
from rein_bus.kafka_client import MAX_RECORD_BYTES, bounded, opened_admin, opened_producer
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import TOPICS, Topic

#: The longest a preflight waits for a broker to answer at all, seconds.
PATIENCE_S = 8.0

#: Between two looks at topics that are being made, seconds.
SETTLING_S = 0.05

#: Named in one error; a wholly different cluster would fill pages.
MAX_PROBLEMS = 6


@dataclass(frozen=True, slots=True)
class Report:
    """What was found and done."""

    created: tuple[str, ...]
    existing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """An existing topic."""

    num_partitions: int
    configs: Mapping[str, str]


async def preflight(settings: KafkaSettings, *, topics: Sequence[Topic] = TOPICS, creates: bool = True) -> Report:
    """Make the cluster fit, or say what does not; without `creates`, a missing topic does not fit."""
    hasty = settings.model_copy(update={"request_timeout_s": min(settings.request_timeout_s, PATIENCE_S)})
    async with opened_admin(hasty) as admin, bounded(settings, "create and check the topics"):
        missing = await _missing(admin, topics=topics, prefix=settings.prefix)
        created = await _create(admin, topics=missing, prefix=settings.prefix) if creates else ()
        there = [topic for topic in topics if creates or topic not in missing]
        found = await _describe(admin, topics=there, prefix=settings.prefix)
    problems = [
        f"topic {topic.name(settings.prefix)} is missing; create it with rein topics --create"
        for topic in topics
        if topic not in there
    ]
    problems += [
        problem for topic in there for problem in mismatches(topic, found=found[topic], prefix=settings.prefix)
    ]
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        named = "; ".join(problems[:MAX_PROBLEMS])
        raise BusMisconfigured("bus.topics_unfit", f"the cluster at {settings.servers}: {named}{more}")
    await _try_transactions(settings)
    return Report(
        created=created,
        existing=tuple(name for topic in topics if (name := topic.name(settings.prefix)) not in created),
    )


def mismatches(topic: Topic, *, found: Found, prefix: str) -> list[str]:
    """What of an existing topic does not fit the table: thing, place and remedy of each."""
    name = topic.name(prefix)
    wanted = _configs(topic)
    problems = [
        f"topic {name} has {key}={found.configs.get(key)}, Rein needs {wanted[key]}; change it with kafka-configs"
        for key, fits in (("cleanup.policy", _is_equal), ("retention.ms", _is_long_enough))
        if not fits(found.configs.get(key, ""), wanted[key])
    ]
    if found.num_partitions != topic.partitions:
        problems.append(
            f"topic {name} has {found.num_partitions} partitions, Rein needs {topic.partitions}: joined topics must"
            " agree; delete it, or set another kafka.prefix"
        )
    limit = int(found.configs.get("max.message.bytes", 0))
    if limit < topic.max_bytes + OVERHEAD_BYTES:
        problems.append(
            f"topic {name} takes records of {limit} bytes (its max.message.bytes, or the brokers' message.max.bytes),"
            f" its events need {topic.max_bytes + OVERHEAD_BYTES}; raise it with kafka-configs"
        )
    if topic.max_bytes + OVERHEAD_BYTES > MAX_RECORD_BYTES:
        problems.append(f"topic {name} allows more than the {MAX_RECORD_BYTES} bytes clients send and fetch")
    return problems


async def drop_topics(settings: KafkaSettings, *, topics: Sequence[Topic] = TOPICS) -> None:
    """Delete Rein's topics with all they hold; those that do not exist are passed over."""
    async with opened_admin(settings) as admin, bounded(settings, "delete the topics"):
        await admin.delete_topics([topic.name(settings.prefix) for topic in topics])


def _is_equal(found: str, wanted: str) -> bool:
    return found == wanted


def _is_long_enough(found: str, wanted: str) -> bool:
    """Milliseconds; -1 = for ever."""
    return found == "-1" or (wanted != "-1" and found.isdigit() and int(found) >= int(wanted))


def _configs(topic: Topic) -> dict[str, str]:
    return {
        "cleanup.policy": "compact" if topic.is_compacted else "delete",
        "retention.ms": "-1" if topic.retention_s is None else str(topic.retention_s * 1000),
        "max.message.bytes": str(topic.max_bytes + OVERHEAD_BYTES),
    }


async def _missing(admin: AIOKafkaAdminClient, *, topics: Sequence[Topic], prefix: str) -> list[Topic]:
    there = set(await admin.list_topics())
    return [topic for topic in topics if topic.name(prefix) not in there]


async def _create(admin: AIOKafkaAdminClient, *, topics: Sequence[Topic], prefix: str) -> tuple[str, ...]:
    if not topics:
        return ()
    answer = await admin.create_topics(
        [
            # -1 = the cluster's default replication; aiokafka takes it only beside an (empty) assignment
            NewTopic(topic.name(prefix), topic.partitions, -1, replica_assignments={}, topic_configs=_configs(topic))
            for topic in topics
        ]
    )
    for name, code, *message in answer.topic_errors:
        error = for_code(code)
        if error not in (NoError, TopicAlreadyExistsError):  # another service may have been faster
            raise BusMisconfigured(
                "bus.topic_refused", f"the brokers did not create topic {name}: {error.__name__} {' '.join(message)}"
            )
    return tuple(topic.name(prefix) for topic in topics)


async def _describe(admin: AIOKafkaAdminClient, *, topics: Sequence[Topic], prefix: str) -> dict[Topic, Found]:
    if not topics:
        return {}
    names = [topic.name(prefix) for topic in topics]
    partitions = await _partition_counts(admin, names=names)
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    configs = {
        name: {entry[0]: entry[1] for entry in entries}
        for answer in answers
        for _code, _message, _kind, name, entries in answer.resources
    }
    return {topic: Found(partitions[name], configs[name]) for topic, name in zip(topics, names, strict=True)}


async def _partition_counts(admin: AIOKafkaAdminClient, *, names: Sequence[str]) -> dict[str, int]:
    """Waits until every topic has all its leaders: a topic is made before all brokers have heard of it."""
    while True:
        described = await admin.describe_topics(list(names))
        if all(one["error_code"] == 0 and all(_has_leader(part) for part in one["partitions"]) for one in described):
            return {one["topic"]: len(one["partitions"]) for one in described}
        await asyncio.sleep(SETTLING_S)


def _has_leader(partition: Mapping[str, int]) -> bool:
    return partition["error_code"] == 0 and partition["leader"] >= 0


async def _try_transactions(settings: KafkaSettings) -> None:
    """Ask for a transactional producer id: needs idempotence and transactions to work."""
    try:
        async with opened_producer(settings, transactional_id=f"{settings.prefix}-preflight"):
            return
    except BusTransient as error:
        raise BusMisconfigured(
            "bus.no_transactions",
            f"the brokers at {settings.servers} gave no transactional producer id within {settings.request_timeout_s:g}"
            " s; Rein needs idempotent producers and transactions, use Apache Kafka 3.0 or newer, or see why its"
            " transaction coordinator is not up (transaction.state.log.replication.factor against the broker count)",
        ) from error
