"""Windowed tables of each run, kept by Faust: they outlive the process in their changelog topic.

Faust's consumer may commit past an event still in flight, so it only ever feeds these figures, never training data.
The tables are written from topics with different partition counts, so Faust is told to place their keys by its
partitioner; one observer serves a set of topics.
"""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import faust
from faust.types.auth import CredentialsT
from google.protobuf.message import DecodeError, Message

from rein.v1 import events_pb2 as ev
from rein_bus.kafka_client import connection_arguments
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of
from rein_observer.domain.board import run_of
from rein_observer.domain.windows import Window, add, empty

log = logging.getLogger(__name__)

COUNTED: tuple[type[Message], ...] = (ev.GroupAssembled, ev.RolloutGraded, ev.StepCompleted, ev.FindingRecorded)


class WindowTables:
    """Figures per run and window of `window_s` seconds, for the last `num_windows` of them."""

    def __init__(self, settings: KafkaSettings, *, window_s: float, num_windows: int, state: Path) -> None:
        self._window_s = window_s
        self._num_windows = num_windows
        self._app = faust.App(
            f"{settings.prefix}-observer",
            broker=[f"kafka://{server}" for server in settings.servers.split(",")],
            broker_credentials=_credentials(settings),
            store="memory://",
            datadir=str(state),
            web_enabled=False,
            consumer_auto_offset_reset="earliest",
            stream_wait_empty=False,
            topic_partitions=1,
            topic_disable_leader=True,
        )
        table = self._app.Table("windows", default=empty, partitions=1, use_partitioner=True)
        self._windows = table.tumbling(window_s, expires=window_s * num_windows)
        for message_type in COUNTED:
            self._count(message_type, settings=settings)

    async def __aenter__(self) -> Self:
        self._app.finalize()
        await self._app.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._app.stop()

    def recent(self) -> dict[str, list[tuple[str, Window]]]:
        """Each run's windows, newest first, titled by the UTC minute they began."""
        found: dict[str, list[tuple[float, Window]]] = {}
        for (run, (start_s, _end_s)), window in self._windows.table.items():
            found.setdefault(run, []).append((start_s, window))
        return {run: self._titled(windows) for run, windows in found.items()}

    def _titled(self, windows: Sequence[tuple[float, Window]]) -> list[tuple[str, Window]]:
        newest = sorted(windows, key=lambda entry: entry[0], reverse=True)[: self._num_windows]
        return [(datetime.fromtimestamp(start_s, UTC).strftime("%H:%M:%S"), window) for start_s, window in newest]

    def _count(self, message_type: type[Message], *, settings: KafkaSettings) -> None:
        """An agent that adds every event of one topic to its run's window."""
        name = topic_of(message_type).name(settings.prefix)
        topic = self._app.topic(name, key_serializer="raw", value_serializer="raw")
        self._app.agent(topic, name=f"count.{name}")(self._adder(message_type))

    def _adder(self, message_type: type[Message]) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def add_to_window(stream: Any) -> None:
            async for event in _events(stream):
                message = message_type()
                try:
                    message.ParseFromString(event.value)
                except DecodeError:
                    log.warning("observer.undecodable", extra={"topic": event.message.topic})
                    continue
                if run := run_of(message):
                    self._windows[run] = add(self._windows[run].value(), message)

        return add_to_window


def _events(stream: Any) -> AsyncIterator[Any]:
    """Faust's stream is untyped."""
    events: AsyncIterator[Any] = stream.events()
    return events


def _credentials(settings: KafkaSettings) -> CredentialsT | None:
    """The bus's connection settings in Faust's words."""
    arguments = connection_arguments(settings)
    context = arguments.get("ssl_context")
    if settings.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=arguments["sasl_plain_username"],
            password=arguments["sasl_plain_password"],
            mechanism=arguments["sasl_mechanism"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None
