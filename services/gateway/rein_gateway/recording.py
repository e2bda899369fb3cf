"""Putting turns on the bus before anybody sees their answers.

Invariants: turns of a session are published one at a time, in order of their numbers. A turn whose acknowledgement did
not come may be in the log all the same; it stays pending, and is published again, unchanged, before anything else of
its session: consumers know it by its identity and number, so the log and the session agree on what turn n is.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.errors import BusTransient
from rein_bus.ports import Bus
from rein_gateway import metrics
from rein_gateway.domain.events import Captured, Remark, finding_of, remarks_on, turn_of
from rein_gateway.domain.session import Session
from rein_gateway.errors import CallDelayed
from rein_gateway.flights import FlightKey
from rein_gateway.ports import Blobs
from rein_service.clock import Clock
from rein_tokens import spill

log = logging.getLogger(__name__)

#: A turn larger than this leaves its arrays in the blob store; the topic takes twice as much.
MAX_TURN_BYTES = 256 * 1024
_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Pending:
    """A turn that is not acknowledged yet, with its findings."""

    key: FlightKey
    captured: Captured
    events: tuple[ev.TurnCaptured | ev.FindingRecorded, ...]


@dataclass(eq=False, slots=True)
class Record:
    """What is recorded of one attempt; `session` holds acknowledged turns only."""

    session: Session = field(default_factory=Session)
    pending: Pending | None = None
    told: set[Remark] = field(default_factory=set)
    """Lasting remarks; they are told once."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def num_turns(self) -> int:
        """Turns in the log, one that may be there included."""
        return self.session.num_turns + (self.pending is not None)


class Recorder:
    """Publishes turns and findings."""

    def __init__(
        self, *, bus: Bus, blobs: Blobs, clock: Clock, instance: str, renderer_digest: str, patience_s: float
    ) -> None:
        """`instance` and `renderer_digest` stand in each turn; an acknowledgement is waited for `patience_s`."""
        self._bus = bus
        self._blobs = blobs
        self._clock = clock
        self._instance = instance
        self._renderer_digest = renderer_digest
        self._patience_s = patience_s

    async def record(self, record: Record, *, captured: Captured, key: FlightKey) -> None:
        """Return once the turn is acknowledged. Raises CallDelayed; the turn is pending then."""
        async with record.lock:
            await self._flush(record)
            turn = turn_of(
                captured, session=record.session, gateway=self._instance, renderer_digest=self._renderer_digest
            )
            turn.at.FromDatetime(self._clock.now())
            remarks = _news(record, remarks_on(captured, session=record.session))
            findings = [self._finding(captured.grant.identity, remark, turn=turn.turn) for remark in remarks]
            record.pending = Pending(key, captured, (await self._fitting(turn), *findings))
            await self._flush(record)

    async def flush(self, record: Record) -> None:
        """Publish a pending turn, if there is one. Raises CallDelayed."""
        async with record.lock:
            await self._flush(record)

    async def remark(self, record: Record, *, identity: pb.Identity, remark: Remark) -> None:
        """Publish a finding about the attempt and no single turn. Raises CallDelayed."""
        for each in _news(record, [remark]):
            await self._publish(self._finding(identity, each, turn=None))

    async def _flush(self, record: Record) -> None:
        pending = record.pending
        if pending is None:
            return
        await self._publish(*pending.events)
        captured = pending.captured
        record.session.record(captured.lineage, sample=captured.sample)
        record.pending = None
        metrics.TURNS_CAPTURED.labels(captured.dialect).inc()
        metrics.TOKENS_SAMPLED.inc(len(captured.generation.token_ids))

    async def _publish(self, *events: Message) -> None:
        deadline_s = self._clock.monotonic() + self._patience_s
        while True:
            try:
                await self._bus.publish(*events)
                return
            except BusTransient as error:
                log.warning("bus.publish_retried", extra={"detail": error.detail})
                if self._clock.monotonic() + _RETRY_S > deadline_s:
                    detail = "the turn could not be recorded, so its answer is held back; try again"
                    raise CallDelayed("bus.away", detail) from error
            await self._clock.sleep(_RETRY_S)

    async def _fitting(self, turn: ev.TurnCaptured) -> ev.TurnCaptured:
        """The turn, its arrays left in the blob store where it is too large for the topic."""
        if turn.ByteSize() > MAX_TURN_BYTES:
            data = spill(prompt_ids=turn.prompt_ids, sampled_ids=turn.sampled_ids, logprobs=turn.logprobs)
            turn.arrays.CopyFrom(await self._blobs.put(data))
            for name in ("prompt_ids", "sampled_ids", "logprobs"):
                turn.ClearField(name)
        return turn

    def _finding(self, identity: pb.Identity, remark: Remark, *, turn: int | None) -> ev.FindingRecorded:
        metrics.FINDINGS.labels(remark.code).inc()
        return finding_of(remark, identity=identity, turn=turn, at=self._clock.now())


def _news(record: Record, remarks: Iterable[Remark]) -> Iterator[Remark]:
    """Without the lasting ones that were told before."""
    for remark in remarks:
        if remark not in record.told:
            yield remark
        if remark.is_lasting:
            record.told.add(remark)
