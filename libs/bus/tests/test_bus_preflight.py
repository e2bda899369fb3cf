"""Preflight on a real broker, and its comparison of one topic without any."""

import asyncio
import socket
from dataclasses import replace

import pytest
from aiokafka.admin import NewTopic
from pydantic import SecretStr

from rein.v1 import events_pb2 as ev
from rein_bus.errors import BusMisconfigured, BusTransient
from rein_bus.kafka_client import connection_arguments, opened_admin
from rein_bus.localbroker import free_ports
from rein_bus.preflight import PATIENCE_S, Found, drop_topics, mismatches, preflight
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import TOPICS, topic_of

TURNS = topic_of(ev.TurnCaptured)
FITTING = Found(
    TURNS.partitions,
    {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000), "max.message.bytes": str(600 * 1024)},
)


def test_a_fitting_topic_has_no_mismatch() -> None:
    assert mismatches(TURNS, found=FITTING, prefix="rein") == []


@pytest.mark.parametrize("retention_ms", ["-1", str(30 * 24 * 3600 * 1000)])
def test_a_topic_may_keep_its_records_longer(retention_ms: str) -> None:
    found = replace(FITTING, configs={**FITTING.configs, "retention.ms": retention_ms})
    assert mismatches(TURNS, found=found, prefix="rein") == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (replace(FITTING, num_partitions=3), "rein.turn.captured.v1 has 3 partitions, Rein needs 6"),
        (replace(FITTING, configs={**FITTING.configs, "cleanup.policy": "compact"}), "cleanup.policy=compact"),
        (replace(FITTING, configs={**FITTING.configs, "retention.ms": "1000"}), "retention.ms=1000"),
        (replace(FITTING, configs={**FITTING.configs, "max.message.bytes": "1000"}), "takes records of 1000 bytes"),
    ],
)
def test_each_mismatch_names_topic_value_and_need(found: Found, told: str) -> None:
    (problem,) = mismatches(TURNS, found=found, prefix="rein")
    assert told in problem


async def test_an_unreachable_cluster_is_one_clear_error_in_time() -> None:
    assert PATIENCE_S < 10
    (port,) = free_ports(1)
    with pytest.raises(BusTransient, match=rf"127\.0\.0\.1:{port}"):  # refused: at once
        await preflight(KafkaSettings(servers=f"127.0.0.1:{port}"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        async with asyncio.timeout(5):
            with pytest.raises(BusTransient, match=servers):
                await preflight(KafkaSettings(servers=servers, request_timeout_s=0.5))


def test_sasl_without_credentials_and_a_missing_certificate_are_named() -> None:
    with pytest.raises(BusMisconfigured, match=r"kafka\.sasl_user"):
        connection_arguments(KafkaSettings(security_protocol="SASL_SSL"))
    with pytest.raises(BusMisconfigured, match=r"kafka\.ca_file"):
        connection_arguments(KafkaSettings.model_validate({"security_protocol": "SSL", "ca_file": "/nowhere.pem"}))


def test_credentials_reach_the_client_and_no_log() -> None:
    settings = KafkaSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_user="rein",
        sasl_password=SecretStr("s3cret"),
    )
    assert connection_arguments(settings)["sasl_plain_password"] == "s3cret"
    assert "s3cret" not in repr(settings)


@pytest.mark.kafka
async def test_missing_topics_are_made_and_a_second_call_changes_nothing(kafka_settings: KafkaSettings) -> None:
    settings = kafka_settings.model_copy(update={"prefix": f"{kafka_settings.prefix}-made"})
    first = await preflight(settings)
    second = await preflight(settings)
    await drop_topics(settings)
    assert set(first.created) == {topic.name(settings.prefix) for topic in TOPICS}
    assert second.created == ()
    assert set(second.existing) == set(first.created)


@pytest.mark.kafka
async def test_an_undersized_topic_of_an_existing_cluster_is_named(kafka_settings: KafkaSettings) -> None:
    settings = kafka_settings.model_copy(update={"prefix": f"{kafka_settings.prefix}-small"})
    async with opened_admin(settings) as admin:
        await admin.create_topics(
            [
                NewTopic(
                    TURNS.name(settings.prefix),
                    TURNS.partitions,
                    1,
                    topic_configs={"max.message.bytes": "1000", "retention.ms": str(7 * 24 * 3600 * 1000)},
                )
            ]
        )
    with pytest.raises(BusMisconfigured, match=r"-small\.turn\.captured\.v1 takes records of 1000 bytes"):
        await preflight(settings)
    await drop_topics(settings)
