"""The grader on the memory bus, with a scripted examiner: duplicates, troubles of the machine, drains, crashes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobStore
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_bus.ports import Start
from rein_grader.domain.grade import Grade, failure
from rein_grader.errors import TaskRefused, VerifierFailed
from rein_grader.service import Grader, GraderSettings
from rein_sandboxes.errors import SandboxFailed
from rein_service.clock import FakeClock
from rein_service.testing import eventually

PATCH = b"diff --git a/x b/x\n"
TESTS = (ev.TestResult(test="t.py::test", outcome=ev.TEST_OUTCOME_PASSED),)
PASSED = Grade(is_passed=True, tests=TESTS, failure=None, output=b"1 passed", wall_s=1.0, cpu_s=0.5)
FAILED = Grade(is_passed=False, tests=(), failure=None, output=b"1 failed", wall_s=1.0, cpu_s=0.5)


class FakeExaminer:
    """Does what is scripted, then the last of it again."""

    def __init__(self, *script: Grade | Exception) -> None:
        self.script = list(script)
        self.patches: list[bytes] = []
        self.hold: Callable[[], Awaitable[object]] | None = None

    async def examine(self, finished: ev.RolloutFinished, *, patch: bytes) -> Grade:
        self.patches.append(patch)
        if self.hold is not None:
            await self.hold()
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Stage:
    """A grader's surroundings."""

    def __init__(self, tmp_path: Path) -> None:
        self.broker = MemoryBroker()
        self.blobs = BlobStore(str(tmp_path / "blobs"))
        self.clock = FakeClock()

    def grader(self, examiner: FakeExaminer, *, reuse_grades: bool = True, capacity: int = 4) -> Grader:
        settings = GraderSettings(instance="one", capacity=capacity, attempts=2, reuse_grades=reuse_grades, drain_s=1.0)
        bus = MemoryBus(self.broker)
        return Grader(bus=bus, blobs=self.blobs, examiner=examiner, clock=self.clock, settings=settings)

    @asynccontextmanager
    async def grading(
        self, examiner: FakeExaminer, *, reuse_grades: bool = True, capacity: int = 4
    ) -> AsyncIterator[None]:
        draining = asyncio.Event()
        grader = self.grader(examiner, reuse_grades=reuse_grades, capacity=capacity)
        working = asyncio.create_task(grader.run(draining))
        try:
            yield
        finally:
            draining.set()
            await asyncio.wait_for(working, 5)

    async def publish(self, *messages: ev.RolloutFinished) -> None:
        await MemoryBus(self.broker).publish(*messages)

    async def graded(self, number: int = 1) -> list[ev.RolloutGraded]:
        """The first `number` grades."""
        found: list[ev.RolloutGraded] = []
        async with MemoryBus(self.broker).follow(ev.RolloutGraded, start=Start.EARLIEST) as follower:
            async with asyncio.timeout(5):
                while len(found) < number:
                    message = (await anext(aiter(follower))).message
                    assert isinstance(message, ev.RolloutGraded)
                    found.append(message)
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def finished(stage: Stage, *, member: int = 0, patch: bytes = PATCH) -> ev.RolloutFinished:
    event = ev.RolloutFinished(
        identity=pb.Identity(run="r", task="t", group="r.g0", member=member, attempt=1),
        purpose=pb.PURPOSE_TRAIN,
        task_set="set",
        task_digest="d",
        num_turns=3,
        limits=pb.Limits(grading_s=10),
    )
    if patch:
        event.patch.CopyFrom(await stage.blobs.put(patch))
    return event


async def test_a_patch_gets_its_reward_with_every_test_named(stage: Stage) -> None:
    async with stage.grading(FakeExaminer(PASSED)):
        await stage.publish(await finished(stage))
        [grade] = await stage.graded()
    assert (grade.reward, grade.num_turns, grade.grader_version) == (1.0, 3, "1")
    assert [test.test for test in grade.tests] == ["t.py::test"]
    assert await stage.blobs.get(grade.output) == b"1 passed"


async def test_an_empty_patch_is_graded_like_any_other(stage: Stage) -> None:
    examiner = FakeExaminer(FAILED)
    async with stage.grading(examiner):
        await stage.publish(await finished(stage, patch=b""))
        [grade] = await stage.graded()
    assert (grade.HasField("reward"), grade.reward) == (True, 0.0)
    assert examiner.patches == [b""]


async def test_a_failure_that_is_not_the_policys_has_no_reward(stage: Stage) -> None:
    examiner = FakeExaminer(PASSED)
    event = await finished(stage)
    event.failure.CopyFrom(failure(pb.OWNER_INFERENCE, "inference.session_lost", "x"))
    async with stage.grading(examiner):
        await stage.publish(event)
        [grade] = await stage.graded()
    assert not grade.HasField("reward")
    assert grade.failure == event.failure
    assert examiner.patches == []


async def test_the_policys_own_failure_is_still_graded(stage: Stage) -> None:
    event = await finished(stage)
    event.failure.CopyFrom(failure(pb.OWNER_POLICY, "policy.out_of_time", "x"))
    async with stage.grading(FakeExaminer(PASSED)):
        await stage.publish(event)
        [grade] = await stage.graded()
    assert grade.reward == 1.0


@pytest.mark.parametrize(
    ("error", "owner", "tries"),
    [
        (SandboxFailed("sandbox.disk_full", "x"), pb.OWNER_SANDBOX, 2),
        (VerifierFailed("grader.verifier_failed", "x"), pb.OWNER_GRADER, 2),
        (TaskRefused("task.broken", "x"), pb.OWNER_TASK, 1),
    ],
)
async def test_trouble_of_the_machine_is_absent_never_zero(
    stage: Stage, error: SandboxFailed | VerifierFailed | TaskRefused, owner: int, tries: int
) -> None:
    examiner = FakeExaminer(error)
    async with stage.grading(examiner):
        await stage.publish(await finished(stage))
        if tries > 1:
            await eventually(lambda: stage.clock.num_sleepers == 1)
            await stage.clock.advance(1)
        [grade] = await stage.graded()
    assert not grade.HasField("reward")
    assert (grade.failure.owner, grade.failure.code) == (owner, error.code)
    assert len(examiner.patches) == tries


async def test_a_passing_trouble_is_tried_again(stage: Stage) -> None:
    async with stage.grading(FakeExaminer(SandboxFailed("sandbox.start_failed", "x"), PASSED)):
        await stage.publish(await finished(stage))
        await eventually(lambda: stage.clock.num_sleepers == 1)
        await stage.clock.advance(1)
        [grade] = await stage.graded()
    assert grade.reward == 1.0


async def test_a_patch_that_is_not_in_the_store_is_absent(stage: Stage) -> None:
    event = await finished(stage)
    event.patch.CopyFrom(pb.BlobRef(sha256="0" * 64, size_bytes=1))
    async with stage.grading(FakeExaminer(PASSED)):
        await stage.publish(event)
        [grade] = await stage.graded()
    assert (grade.failure.owner, grade.failure.code) == (pb.OWNER_GRADER, "blobs.missing")


async def test_the_same_patch_is_not_run_twice_and_the_event_says_so(stage: Stage) -> None:
    examiner = FakeExaminer(PASSED, FAILED)
    async with stage.grading(examiner):
        await stage.publish(await finished(stage))
        await stage.graded()
        await stage.publish(await finished(stage, member=1))
        first, second = await stage.graded(2)
    assert (first.reward, second.reward) == (1.0, 1.0)
    assert second.tests == first.tests
    assert b"graded for r.g0/0#1" in await stage.blobs.get(second.output)
    assert len(examiner.patches) == 1


async def test_grades_are_not_reused_where_that_is_switched_off(stage: Stage) -> None:
    examiner = FakeExaminer(PASSED, FAILED)
    async with stage.grading(examiner, reuse_grades=False):
        await stage.publish(await finished(stage))
        await stage.graded()
        await stage.publish(await finished(stage, member=1))
        assert [grade.reward for grade in await stage.graded(2)] == [1.0, 0.0]


async def test_an_absent_reward_is_never_reused(stage: Stage) -> None:
    async with stage.grading(FakeExaminer(TaskRefused("task.broken", "x"), PASSED)):
        await stage.publish(await finished(stage))
        await stage.graded()
        await stage.publish(await finished(stage, member=1))
        assert [grade.HasField("reward") for grade in await stage.graded(2)] == [False, True]


async def test_a_record_delivered_twice_gets_the_same_grade(stage: Stage) -> None:
    async with stage.grading(FakeExaminer(PASSED, FAILED)):
        event = await finished(stage)
        await stage.publish(event)
        await stage.graded()
        await stage.publish(event)
        assert [grade.reward for grade in await stage.graded(2)] == [1.0, 1.0]


async def test_no_more_than_its_capacity_is_graded_at_once(stage: Stage) -> None:
    examiner = FakeExaminer(PASSED)
    go_on = asyncio.Event()
    examiner.hold = go_on.wait
    async with stage.grading(examiner, capacity=2, reuse_grades=False):
        await stage.publish(*[await finished(stage, member=member) for member in range(5)])
        await eventually(lambda: len(examiner.patches) == 2)
        go_on.set()
        await stage.graded(5)


async def test_a_grader_that_dies_loses_no_grade(stage: Stage) -> None:
    stuck = FakeExaminer(PASSED)
    stuck.hold = asyncio.Event().wait
    working = asyncio.create_task(stage.grader(stuck).run(asyncio.Event()))
    await stage.publish(await finished(stage))
    await eventually(lambda: len(stuck.patches) == 1)
    working.cancel()
    await asyncio.wait([working])
    async with stage.grading(FakeExaminer(FAILED)):
        [grade] = await stage.graded()
    assert grade.reward == 0.0


async def test_a_drain_leaves_what_is_not_done_to_another_grader(stage: Stage) -> None:
    stuck = FakeExaminer(PASSED)
    stuck.hold = asyncio.Event().wait
    async with stage.grading(stuck):
        await stage.publish(await finished(stage))
        await eventually(lambda: len(stuck.patches) == 1)
    async with stage.grading(FakeExaminer(FAILED)):
        [grade] = await stage.graded()
    assert grade.reward == 0.0


async def test_an_unforeseen_error_stops_the_service(stage: Stage) -> None:
    await stage.publish(await finished(stage))
    with pytest.raises(ExceptionGroup) as error:
        await stage.grader(FakeExaminer(ZeroDivisionError())).run(asyncio.Event())
    assert error.group_contains(ZeroDivisionError)
