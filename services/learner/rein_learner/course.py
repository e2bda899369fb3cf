"""One run being trained: from its newest checkpoint on, step by step, until it is over or somebody else's.

Order inside a step: study, judge, update, checkpoint, weights, events. A crash before the checkpoint loses the step,
which is made again from the same groups; a crash after it publishes the same weights and events again. So no group is
trained on twice in the policy that lives on, and none is lost. All weighing of tensors happens behind `Student`.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein.v1 import weights_pb2 as wt
from rein_bus.ports import Bus, Follower
from rein_learner import metrics
from rein_learner.domain.collector import Collector, Ignored
from rein_learner.domain.lesson import Lesson, Study, lesson_of
from rein_learner.domain.record import Record
from rein_learner.errors import CorrelationLow, LossNotFinite
from rein_learner.ports import Arrays, Checkpoint, Checkpoints, Lecture, School, Student, Studied, Weights
from rein_service.clock import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Means:
    """What training needs."""

    bus: Bus
    school: School
    checkpoints: Checkpoints
    weights: Weights
    arrays: Arrays
    clock: Clock


class Course:
    """Open it with `opened`, then `read` and `train` side by side."""

    def __init__(
        self, spec: ev.RunSpec, *, means: Means, student: Student, checkpoint: Checkpoint, wake: asyncio.Event
    ) -> None:
        self._spec = spec
        self._means = means
        self._student = student
        self._checkpoint = checkpoint
        self._wake = wake
        self._exported_step = -1
        self._collector = Collector(
            run=spec.name,
            groups_per_step=spec.groups_per_step,
            finished_step=checkpoint.record.step,
            offsets=checkpoint.record.offsets,
        )

    @classmethod
    async def opened(cls, spec: ev.RunSpec, *, means: Means, wake: asyncio.Event) -> "Course":
        """Restored from the newest usable checkpoint, or begun. Raises ModelUnusable, CheckpointsLost."""
        student = await means.school.enrol(spec)
        newest, damaged = await means.checkpoints.newest(spec.name)
        for detail in damaged:
            await _warn(means, run=spec.name, code="checkpoint.damaged", detail=detail)
        if newest is None:
            newest = await _saved(means, spec=spec, student=student, offsets={}, completed=None)
        else:
            await student.restore(newest.folder)
        log.info("run.opened", extra={"run": spec.name, "step": newest.record.step})
        return cls(spec, means=means, student=student, checkpoint=newest, wake=wake)

    @property
    def step(self) -> int:
        """The step finished last."""
        return self._checkpoint.record.step

    @property
    def num_held(self) -> int:
        """Groups waiting for their step."""
        return self._collector.num_held

    @property
    def start(self) -> dict[tuple[type[Message], int], int]:
        """Where `read` must begin."""
        offsets = self._checkpoint.record.offsets
        return {(ev.GroupAssembled, partition): offset for partition, offset in offsets.items()}

    async def read(self, follower: Follower) -> None:
        """Take note of every group, for ever."""
        async for record in follower:
            event = record.message
            assert isinstance(event, ev.GroupAssembled)
            ignored = self._collector.apply(event, partition=record.place.partition, offset=record.place.offset)
            if ignored is None:
                self._wake.set()
                continue
            metrics.GROUPS_IGNORED.labels(ignored.value).inc()
            if ignored is Ignored.DUPLICATE:
                log.warning("group.ignored", extra={"group": event.group.group, "reason": ignored.value})

    async def train(self, *, is_on: Callable[[], bool]) -> None:
        """Announce the newest checkpoint, then make steps while `is_on`. Raises RejectedError: the run must stop."""
        await self._announce()
        while is_on():
            groups = self._collector.batch(self.step + 1) if self.step < self._spec.steps else None
            if groups is None:
                await self._wake.wait()
                self._wake.clear()
                continue
            await self._make_step(groups)

    async def export(self) -> None:
        """Leave the policy as an ordinary model folder, once per step."""
        if self._exported_step == self.step:
            return
        folder = self._means.checkpoints.final(self._spec.name)
        await self._student.export(folder)
        self._exported_step = self.step
        log.info("policy.exported", extra={"run": self._spec.name, "step": self.step, "folder": str(folder)})

    async def _make_step(self, groups: Sequence[ev.GroupAssembled]) -> None:
        began_s = self._means.clock.monotonic()
        record, step = self._checkpoint.record, self.step + 1
        studies = [Study(event, await self._means.arrays.of_group(event.arrays)) for event in groups]
        lesson = lesson_of(studies, spec=self._spec, step=step, version=record.version)
        past = await self._means.checkpoints.past_weights(self._spec.name)
        lecture = Lecture(lesson.rows, lesson.silent, lesson.num_trainable, record.version, past)
        studied = await self._student.study(lecture)
        self._judge(studied, step=step)
        if lesson.rows:
            await self._student.update()
        _set_surplus_aside(lesson, self._collector.finish(step))
        step_s = self._means.clock.monotonic() - began_s
        completed = _completed(lesson, studied, record=record, step_s=step_s)
        offsets = self._collector.offsets()
        self._checkpoint = await _saved(
            self._means, spec=self._spec, student=self._student, offsets=offsets, completed=completed
        )
        _report(completed, studied)
        await self._announce()

    def _judge(self, studied: Studied, *, step: int) -> None:
        """Raises before anything is updated."""
        if not math.isfinite(studied.loss) or not math.isfinite(studied.grad_norm):
            raise LossNotFinite(step=step, loss=studied.loss, grad_norm=studied.grad_norm)
        agreement, limit = studied.agreement, self._spec.objective.min_correlation
        if agreement is not None and not agreement.correlation >= limit:
            raise CorrelationLow(
                step=step, correlation=agreement.correlation, limit=limit, num_tokens=agreement.num_tokens
            )

    async def _announce(self) -> None:
        """Weights first, and before the last step's event the final model: whoever reads the event can have them."""
        record = self._checkpoint.record
        if record.step == self._spec.steps:
            await self.export()
        await self._means.weights.publish(record.manifest, weights=self._checkpoint.weights)
        completed = () if record.completed is None else (record.completed,)
        await self._means.bus.publish(record.policy, *completed)
        log.info("policy.published", extra={"run": record.run, "step": record.step, "version": record.version})


async def _saved(
    means: Means,
    *,
    spec: ev.RunSpec,
    student: Student,
    offsets: dict[int, int],
    completed: ev.StepCompleted | None,
) -> Checkpoint:
    """A checkpoint of the student as it is now; after step 0 when there is no `completed`."""
    step, version = (completed.step, completed.version) if completed else (0, 1)
    async with means.checkpoints.writing(spec.name, step=step) as folder:
        written = await student.write(folder)
        policy = ev.PolicyPublished(run=spec.name, version=version, step=step, weights_digest=written.weights_digest)
        policy.at.FromDatetime(means.clock.now())
        manifest = wt.WeightManifest(run=spec.name, version=version, step=step, probe=written.probe, at=policy.at)
        if completed is not None:
            completed.at.CopyFrom(policy.at)
        record = Record(offsets=offsets, manifest=manifest, policy=policy, completed=completed)
        checkpoint = await means.checkpoints.commit(folder, record=record)
    await means.checkpoints.prune(spec.name, keep=max(2, spec.max_staleness_versions + 1))
    return checkpoint


def _set_surplus_aside(lesson: Lesson, names: Sequence[str]) -> None:
    for name in names:
        failure = pb.Failure(owner=pb.OWNER_OPERATOR, code="group.surplus", detail="its step had enough groups")
        lesson.skipped.append(ev.SkippedGroup(group=name, failure=failure))


def _completed(lesson: Lesson, studied: Studied, *, record: Record, step_s: float) -> ev.StepCompleted:
    completed = ev.StepCompleted(
        run=record.run,
        step=record.step + 1,
        version=record.version + 1,
        groups=lesson.groups,
        num_rollouts=lesson.num_rollouts,
        num_segments=lesson.num_segments,
        num_tokens=lesson.num_tokens,
        num_trainable_tokens=lesson.num_trainable,
        loss=studied.loss,
        grad_norm=studied.grad_norm,
        mean_reward=lesson.mean_reward,
        clip_fraction=studied.clip_fraction,
        mean_surprisal=lesson.mean_surprisal,
        max_staleness_versions=lesson.max_staleness_versions,
        step_s=step_s,
        tokens_per_s=lesson.num_tokens / step_s if step_s > 0 else 0.0,
        skipped=lesson.skipped,
    )
    if studied.agreement is not None:
        completed.correlation = studied.agreement.correlation
        completed.max_logprob_gap = studied.agreement.max_gap
    return completed


def _report(completed: ev.StepCompleted, studied: Studied) -> None:
    metrics.STEPS.inc()
    metrics.STEP.set(completed.step)
    metrics.TOKENS.inc(completed.num_tokens)
    metrics.CUT.inc(studied.num_cut)
    metrics.STEP_S.observe(completed.step_s)
    if completed.HasField("correlation"):
        metrics.CORRELATION.set(completed.correlation)
    for skipped in completed.skipped:
        metrics.GROUPS_SKIPPED.labels(skipped.failure.code).inc()
        extra = {"group": skipped.group, "code": skipped.failure.code, "detail": skipped.failure.detail}
        log.info("group.skipped", extra=extra)
    if studied.num_cut:
        log.warning("tokens.cut", extra={"step": completed.step, "num_tokens": studied.num_cut})
    figures: dict[str, object] = {
        "run": completed.run,
        "step": completed.step,
        "num_groups": len(completed.groups),
        "mean_reward": round(completed.mean_reward, 4),
        "correlation": completed.correlation if completed.HasField("correlation") else None,
        "has_update": bool(completed.groups),
    }
    log.info("step.completed", extra=figures)


async def _warn(means: Means, *, run: str, code: str, detail: str) -> None:
    log.warning(code, extra={"run": run, "detail": detail})
    alert = ev.AlertRaised(run=run, code=code, detail=detail, severity=ev.SEVERITY_WARNING)
    alert.at.FromDatetime(means.clock.now())
    await means.bus.publish(alert)
