"""How the Kafka bus opens, bounds and closes aiokafka's clients, and what their errors mean to Rein.

aiokafka retries without an end where a broker is away (an idempotent producer never expires a batch, a coordinator is
looked for until found), so every call that must end goes through `bounded`. Nothing else in Rein reads
`aiokafka.errors`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    AuthenticationFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.helpers import create_ssl_context

from rein_bus.codec import OVERHEAD_BYTES
from rein_bus.errors import BusFenced, BusMisconfigured, BusRejected, BusTransient, ReinError
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import TOPICS

#: Largest record any topic takes, with its framing: what producers may send and consumers must be able to fetch.
MAX_RECORD_BYTES = max(topic.max_bytes for topic in TOPICS) + OVERHEAD_BYTES

#: What an error of the client means, and what to do about it; the first match counts.
_MEANINGS: tuple[tuple[tuple[type[KafkaError], ...], type[ReinError], str, str], ...] = (
    (
        (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState),
        BusFenced,
        "bus.fenced",
        "another member owns the partition now",
    ),
    ((MessageSizeTooLargeError,), BusRejected, "bus.too_large", "raise the topic's limit or shrink the event"),
    (
        (
            AuthenticationFailedError,
            GroupAuthorizationFailedError,
            TopicAuthorizationFailedError,
            TransactionalIdAuthorizationFailed,
        ),
        BusMisconfigured,
        "bus.not_allowed",
        "give this client's user the right, or set another user (kafka.sasl_user)",
    ),
    (
        (IncompatibleBrokerVersion, UnsupportedVersionError),
        BusMisconfigured,
        "bus.old_broker",
        "the cluster lacks what Rein needs; use Apache Kafka 3.0 or newer",
    ),
    (
        (UnknownTopicOrPartitionError,),
        BusMisconfigured,
        "bus.topic_missing",
        "a preflight makes it",
    ),
    ((KafkaConnectionError,), BusTransient, "bus.unreachable", "check that a broker runs there (kafka.servers)"),
    ((KafkaError,), BusTransient, "bus.failed", "it may go well on another try"),
)


def connection_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """What every aiokafka client is opened with."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.servers,
        "security_protocol": settings.security_protocol,
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
    }
    if settings.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = _tls(settings)
    if settings.security_protocol.startswith("SASL"):
        if settings.sasl_mechanism is None or settings.sasl_user is None or settings.sasl_password is None:
            raise BusMisconfigured(
                "bus.no_credentials",
                f"kafka.security_protocol {settings.security_protocol} needs kafka.sasl_mechanism, kafka.sasl_user and"
                " kafka.sasl_password; set them",
            )
        arguments["sasl_mechanism"] = settings.sasl_mechanism
        arguments["sasl_plain_username"] = settings.sasl_user
        arguments["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    return arguments


def _tls(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = create_ssl_context(
            cafile=settings.ca_file and str(settings.ca_file),
            certfile=settings.cert_file and str(settings.cert_file),
            keyfile=settings.key_file and str(settings.key_file),
        )
    except OSError as error:
        raise BusMisconfigured(
            "bus.bad_certificates",
            f"kafka.ca_file, kafka.cert_file and kafka.key_file do not make a TLS context: {error}; check the files",
        ) from error
    assert isinstance(context, ssl.SSLContext)
    return context


@asynccontextmanager
async def bounded(settings: KafkaSettings, what: str) -> AsyncIterator[None]:
    """Run the block within the request timeout and turn its errors into Rein's. `what` completes "could not"."""
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            yield
    except TimeoutError as error:
        raise BusTransient(
            "bus.timeout",
            f"could not {what}: the brokers at {settings.servers} (kafka.servers) did not answer within"
            f" {settings.request_timeout_s:g} s",
        ) from error
    except KafkaError as error:
        raise translated(error, settings=settings, what=what) from error


def translated(error: KafkaError, *, settings: KafkaSettings, what: str) -> ReinError:
    """The error of Rein's tree that says what to do about `error`."""
    kind, code, remedy = next(
        (kind, code, remedy) for errors, kind, code, remedy in _MEANINGS if isinstance(error, errors)
    )
    return kind(code, f"could not {what} at {settings.servers}: {error!r}; {remedy}")


@asynccontextmanager
async def opened_producer(
    settings: KafkaSettings, *, transactional_id: str | None = None
) -> AsyncIterator[AIOKafkaProducer]:
    """An idempotent producer, acknowledged by all in-sync replicas; opening one with an id fences its namesakes."""
    producer = AIOKafkaProducer(
        **connection_arguments(settings),
        acks="all",
        enable_idempotence=True,
        transactional_id=transactional_id,
        max_request_size=MAX_RECORD_BYTES,
        max_batch_size=MAX_RECORD_BYTES,
    )
    try:
        async with bounded(settings, "open a producer"):
            await producer.start()
        yield producer
    finally:
        await close_producer(producer, within_s=settings.request_timeout_s)


async def close_producer(producer: AIOKafkaProducer, *, within_s: float) -> None:
    """Flush and close. What cannot be flushed in time fails: aiokafka itself would wait for ever."""
    stopping = asyncio.ensure_future(producer.stop())
    done, _ = await asyncio.wait({stopping}, timeout=within_s)
    if not done:
        producer._message_accumulator.fail_all(KafkaConnectionError("closed before the brokers came back"))
    await stopping


def new_consumer(settings: KafkaSettings, *, group: str | None = None) -> AIOKafkaConsumer:
    """A consumer that sees committed transactions only and never commits by itself.

    Membership does not hang on polling: aiokafka's heartbeats are a task of their own, so a member that takes nothing
    for hours keeps its partitions. `max_poll_interval_ms` is the longest the protocol knows.
    """
    return AIOKafkaConsumer(
        **connection_arguments(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        partition_assignment_strategy=(RangePartitionAssignor,),
        max_partition_fetch_bytes=MAX_RECORD_BYTES,
        session_timeout_ms=int(settings.session_timeout_s * 1000),
        heartbeat_interval_ms=int(settings.session_timeout_s * 1000 / 4),
        max_poll_interval_ms=2**31 - 1,
    )


@asynccontextmanager
async def opened_admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_arguments(settings))
    try:
        async with bounded(settings, "reach the cluster"):
            await admin.start()
        yield admin
    finally:
        await admin.close()
