"""The grader's loop: take a finished rollout, grade it outside the poll loop, publish the grade, mark it done.

A record is done only when its `RolloutGraded` is acknowledged, so a grader that dies loses none; one that is graded
twice gets the same grade, and consumers keep the first. A reward that could not be measured is absent, with an owner.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobDamaged, BlobMissing, BlobStore, BlobUnavailable
from rein_bus.errors import ReinError, TransientError
from rein_bus.ports import Bus, Record, Work
from rein_contracts.ids import AttemptId, attempt_id
from rein_grader import metrics
from rein_grader.config import GraderConfig
from rein_grader.domain.grade import RULES_VERSION, Grade, GradeKey, KnownGrades, failure
from rein_grader.errors import TaskRefused, VerifierFailed
from rein_grader.ports import Examiner
from rein_sandboxes.errors import SandboxFailed
from rein_service.clock import Clock
from rein_service.logs import bound
from rein_service.publishing import publish_patiently
from rein_service.waiting import unless

log = logging.getLogger(__name__)

GROUP = "graders"
RETRY_S = 0.5
#: Share of the drain limit that gradings get to finish; the rest are redelivered to another grader.
FINISH_SHARE = 0.8

_OWNERS: tuple[tuple[type[ReinError], pb.Owner.ValueType], ...] = (
    (SandboxFailed, pb.OWNER_SANDBOX),
    (VerifierFailed, pb.OWNER_GRADER),
    (TaskRefused, pb.OWNER_TASK),
    (BlobMissing, pb.OWNER_GRADER),
    (BlobDamaged, pb.OWNER_GRADER),
    (BlobUnavailable, pb.OWNER_GRADER),
)
_KNOWN_TROUBLE = tuple(kind for kind, _ in _OWNERS)


@dataclass(frozen=True, slots=True)
class GraderSettings:
    """From the configuration."""

    instance: str
    capacity: int
    attempts: int
    reuse_grades: bool
    drain_s: float

    @classmethod
    def of(cls, config: GraderConfig) -> "GraderSettings":
        return cls(
            instance=config.instance,
            capacity=config.capacity,
            attempts=config.attempts,
            reuse_grades=config.reuse_grades,
            drain_s=config.drain_s,
        )


class Grader:
    """One process's share of the gradings."""

    def __init__(
        self, *, bus: Bus, blobs: BlobStore, examiner: Examiner, clock: Clock, settings: GraderSettings
    ) -> None:
        self._bus = bus
        self._blobs = blobs
        self._examiner = examiner
        self._clock = clock
        self._settings = settings
        self._known = KnownGrades()
        self._live: set[asyncio.Task[None]] = set()
        self._one_ended = asyncio.Event()

    @property
    def num_in_flight(self) -> int:
        return len(self._live)

    async def run(self, draining: asyncio.Event) -> None:
        """Work until `draining` is set and nothing is in hand."""
        async with self._bus.work(ev.RolloutFinished, group=GROUP) as work, asyncio.TaskGroup() as tasks:
            while not draining.is_set():
                await self._room(work, draining=draining)
                record = await unless(draining, work.take())
                if record is not None:
                    live = tasks.create_task(self._handle(record, work=work))
                    self._live.add(live)
                    live.add_done_callback(self._ended)
            await self._wind_up()

    async def _room(self, work: Work, *, draining: asyncio.Event) -> None:
        """Wait while the hands are full."""
        if len(self._live) < self._settings.capacity:
            return
        work.pause()
        while len(self._live) >= self._settings.capacity and not draining.is_set():
            self._one_ended.clear()
            await unless(draining, self._one_ended.wait())
        work.resume()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._live.discard(task)
        self._one_ended.set()

    async def _wind_up(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_s * FINISH_SHARE):
                while self._live:
                    self._one_ended.clear()
                    await self._one_ended.wait()
        for task in tuple(self._live):
            task.cancel()

    async def _handle(self, record: Record[Message], *, work: Work) -> None:
        finished = record.message
        assert isinstance(finished, ev.RolloutFinished)
        attempt = attempt_id(finished.identity)
        with bound(rollout=str(attempt.rollout), attempt=attempt.attempt), metrics.IN_FLIGHT.track_inprogress():
            graded = await self._graded(finished, attempt=attempt)
            await publish_patiently(self._bus, graded, clock=self._clock)
            await work.done(record)
            _note(graded)

    async def _graded(self, finished: ev.RolloutFinished, *, attempt: AttemptId) -> ev.RolloutGraded:
        graded = ev.RolloutGraded(
            identity=finished.identity,
            purpose=finished.purpose,
            grader=self._settings.instance,
            grader_version=RULES_VERSION,
            task_digest=finished.task_digest,
            patch=finished.patch,
            num_turns=finished.num_turns,
        )
        if finished.HasField("failure") and finished.failure.owner != pb.OWNER_POLICY:
            graded.failure.CopyFrom(finished.failure)
        else:
            await self._grade_into(graded, finished=finished, attempt=attempt)
        graded.at.FromDatetime(self._clock.now())
        return graded

    async def _grade_into(self, graded: ev.RolloutGraded, *, finished: ev.RolloutFinished, attempt: AttemptId) -> None:
        key = _key(finished)
        known = self._known.find(key) if self._settings.reuse_grades else None
        try:
            if known is not None:
                metrics.REUSED.inc()
                note = f"The same patch to the same task was graded for {known.origin}; that grade is used again.\n"
                _fill(graded, grade=known.grade)
                graded.wall_s = 0.0
                graded.cpu_s = 0.0
                graded.output.CopyFrom(await self._blobs.put(note.encode()))
                return
            grade = await self._examined(finished)
            if grade.output:
                graded.output.CopyFrom(await self._blobs.put(grade.output))
        except _KNOWN_TROUBLE as error:
            owner = next(owner for kind, owner in _OWNERS if isinstance(error, kind))
            graded.failure.CopyFrom(failure(owner, error.code, error.detail))
            return
        _fill(graded, grade=grade)
        self._known.keep(key, grade=grade, origin=str(attempt))

    async def _examined(self, finished: ev.RolloutFinished) -> Grade:
        """The grade, after as many tries as the machine's troubles are given."""
        for attempt in range(1, self._settings.attempts + 1):
            try:
                patch = await self._blobs.get(finished.patch) if finished.patch.sha256 else b""
                return await self._examiner.examine(finished, patch=patch)
            except TransientError as error:
                if attempt == self._settings.attempts:
                    raise
                metrics.RETRIED.labels(code=error.code).inc()
                log.warning("grading.retried", extra={"code": error.code, "detail": error.detail})
            await self._clock.sleep(RETRY_S)
        raise AssertionError("at least one attempt is configured")


def _key(finished: ev.RolloutFinished) -> GradeKey:
    return GradeKey(
        task_digest=finished.task_digest,
        patch_sha256=finished.patch.sha256,
        grading_s=finished.limits.grading_s,
        memory_bytes=finished.limits.memory_bytes,
    )


def _fill(graded: ev.RolloutGraded, *, grade: Grade) -> None:
    graded.reward = grade.reward
    graded.tests.extend(grade.tests)
    graded.wall_s = grade.wall_s
    if grade.cpu_s is not None:
        graded.cpu_s = grade.cpu_s
    if grade.failure is not None:
        graded.failure.CopyFrom(grade.failure)


def _note(graded: ev.RolloutGraded) -> None:
    has_reward = graded.HasField("reward")
    outcome = "absent" if not has_reward else "passed" if graded.reward else "failed"
    code = graded.failure.code or "none"
    metrics.GRADED.labels(outcome=outcome, code=code).inc()
    if has_reward and graded.wall_s:
        metrics.WALL_S.observe(graded.wall_s)
        metrics.CPU_S.observe(graded.cpu_s)
    about = {"outcome": outcome, "failure": code, "wall_s": round(graded.wall_s, 2)}
    log.info("grade.published", extra={**about, "detail": graded.failure.detail})
