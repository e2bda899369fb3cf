"""Logs on standard error: JSON lines or plain ones. The event is the message; everything else is a field.

Fields bound with `bound(rollout=..., attempt=..., version=...)` stand on every line logged inside, across awaits.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

_BOUND: ContextVar[Mapping[str, object]] = ContextVar("rein_log_fields", default=MappingProxyType({}))
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add `fields` to every line logged inside; inner bindings add to and override outer ones."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Bound fields and `extra` of one line."""
    return {**_BOUND.get(), **{key: value for key, value in vars(record).items() if key not in _OWN}}


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, *, service: str, instance: str) -> None:
        super().__init__()
        self._who = {"service": service, "instance": instance}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._who,
            "logger": record.name,
            "event": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """`12:00:00 info runner.started key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = " ".join(f"{key}={value}" for key, value in fields_of(record).items())
        line = f"{at} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logs(*, service: str, instance: str, level: str, form: Literal["json", "plain"]) -> None:
    """Send the process's logs to standard error in this form, replacing what was configured before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines() if form == "plain" else JsonLines(service=service, instance=instance))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # Per-connection chatter at INFO; its warnings and errors stay.
    for chatty in ("aiokafka", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.captureWarnings(True)
