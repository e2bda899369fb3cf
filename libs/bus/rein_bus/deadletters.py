"""Records no consumer can handle: how they are kept, and when there are too many of them.

A dead letter that cannot be written is fatal: going on would lose the record. So is a flood of them: it means that the
consumer or its topic is broken, and skipping on would throw work away.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from rein.v1 import events_pb2 as ev
from rein.v1.identity_pb2 import OWNER_OPERATOR, Failure
from rein_bus.errors import FatalError, ReinError, RejectedError
from rein_bus.metrics import DEAD_LETTERS
from rein_bus.ports import Place
from rein_contracts.topics import topic_of

VALUE_LIMIT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Letter:
    """The raw record and who gave it up."""

    topic: str
    place: Place
    key: bytes
    value: bytes
    service: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class LetterLimit:
    """More than `max_letters` within `window_s` seconds stop the consumer."""

    max_letters: int = 20
    window_s: float = 60.0


#: More broken records than this in a minute are no accident.
LETTER_LIMIT = LetterLimit()


class DeadLetters:
    """Writes dead letters through `publish`, within a rate."""

    def __init__(
        self,
        publish: Callable[[Message], Awaitable[object]],
        *,
        limit: LetterLimit = LETTER_LIMIT,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self._limit = limit
        self._monotonic = monotonic
        self._written_s: deque[float] = deque()

    async def write(self, letter: Letter) -> None:
        """Raises FatalError when it cannot be made durable, and (having written it) when it went over the rate."""
        try:
            await self._publish(_event(letter))
        except ReinError as error:
            raise FatalError(
                "bus.dead_letter_failed",
                f"the dead letter of {letter.topic}[{letter.place.partition}]@{letter.place.offset} could not be"
                f" written, so {letter.service} stops before it: {error}",
            ) from error
        DEAD_LETTERS.labels(topic_of(letter.place.message).noun_event).inc()
        self._check_rate(letter)

    def _check_rate(self, letter: Letter) -> None:
        now_s = self._monotonic()
        self._written_s.append(now_s)
        while self._written_s[0] <= now_s - self._limit.window_s:
            self._written_s.popleft()
        if len(self._written_s) > self._limit.max_letters:
            raise FatalError(
                "bus.dead_letter_flood",
                f"{letter.service} gave up {len(self._written_s)} records within {self._limit.window_s:g} s, the last"
                f" at {letter.topic}[{letter.place.partition}]@{letter.place.offset} ({letter.failure.code});"
                " look at them with `rein tap deadletter.recorded`",
            )


def poison(error: RejectedError) -> Failure:
    """The failure of a record that cannot be read at all."""
    return Failure(owner=OWNER_OPERATOR, code=error.code, detail=error.detail[:2000])


def _event(letter: Letter) -> ev.DeadLetterRecorded:
    at = Timestamp()
    at.GetCurrentTime()
    return ev.DeadLetterRecorded(
        topic=letter.topic,
        partition=letter.place.partition,
        offset=letter.place.offset,
        service=letter.service,
        failure=letter.failure,
        key=letter.key,
        value=letter.value[:VALUE_LIMIT_BYTES],
        at=at,
    )
