"""Grading in fresh sandboxes: pristine tree, patch applied, hidden tests laid over, tests run without any way out.

Three steps on one folder that no agent has ever seen: `git apply` in a sandbox; the tests laid over from the trusted
copy, with nothing of the tree running; the test run in a second sandbox, whose report is a file the tree does not hold.
"""

import asyncio
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import attempt_id
from rein_grader.domain.grade import Grade, failure
from rein_grader.errors import TaskRefused, VerifierFailed
from rein_sandboxes.errors import SandboxFailed
from rein_sandboxes.folders import owned_folder
from rein_sandboxes.ports import WORKSPACE, Ending, Mount, SandboxLimits, SandboxProvider, SandboxResult, SandboxSpec
from rein_sandboxes.root import PYTHON
from rein_sandboxes.trees import WorkPlace, apply_patch
from rein_tasks import Task, TaskSet, TaskSetBroken, VerifierBroken, load_task_set, materialise, overlay_tests
from rein_tasks.verification import (
    ListedResult,
    Outcome,
    Places,
    Verdict,
    VerifyCommand,
    VerifyRun,
    judge,
    verify_command,
)

SITE = PurePosixPath("/opt/site")
REPORT = PurePosixPath("/opt/report.jsonl")
KEPT_OUTPUT_BYTES = 32 << 10
MOST_OUTPUT_BYTES = 64 << 20
MOST_REPORT_BYTES = 16 << 20
DEFAULT_MEMORY_BYTES = 2 << 30
DEFAULT_PROCESSES = 256
#: The life of a grading's folder, beside the tests' own limit.
MARGIN_S = 600.0

_OUTCOMES = {Outcome.PASSED: ev.TEST_OUTCOME_PASSED, Outcome.MISSING: ev.TEST_OUTCOME_MISSING}
_ENDINGS = {
    Ending.OUT_OF_TIME: "the tests ran past their time limit",
    Ending.OUT_OF_MEMORY: "the tests ran out of memory",
    Ending.OUT_OF_PROCESSES: "the tests ran more processes than they may",
    Ending.OUTPUT_FLOOD: "the tests wrote more output than they may",
}


@dataclass(frozen=True, slots=True)
class _Exam:
    """One grading's place and bounds."""

    task: Task
    place: WorkPlace
    limits: pb.Limits


class SandboxExaminer:
    """An `Examiner`. Reads a task set once."""

    def __init__(self, sandboxes: SandboxProvider, *, state: Path, tasks_cache: Path) -> None:
        self._sandboxes = sandboxes
        self._state = state
        self._tasks_cache = tasks_cache
        self._task_sets: dict[str, TaskSet] = {}

    async def examine(self, finished: ev.RolloutFinished, *, patch: bytes) -> Grade:
        task = await asyncio.to_thread(self._task, finished)
        attempt = str(attempt_id(finished.identity))
        name = f"{attempt.replace('/', '.').replace('#', '-')}.{uuid.uuid4().hex[:8]}"
        about = {"run": finished.identity.run, "attempt": attempt}
        async with owned_folder(self._state, name=name, about=about, most_s=task.limit_s + MARGIN_S) as folder:
            place = WorkPlace(name=name, tree=folder / "tree", scratch=folder)
            return await self._examine(_Exam(task, place, finished.limits), patch=patch)

    async def _examine(self, exam: _Exam, *, patch: bytes) -> Grade:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        await asyncio.to_thread(self._lay_tree, exam)
        if patch and not await apply_patch(self._sandboxes, place=exam.place, patch=patch):
            return _refused_patch(exam.task, wall_s=clock() - started_s)
        await asyncio.to_thread(self._lay_tests, exam)
        result, report = await self._run_tests(exam)
        return _grade(exam.task, result=result, report=report, wall_s=clock() - started_s)

    def _lay_tree(self, exam: _Exam) -> None:
        try:
            materialise(exam.task, dest=exam.place.tree, cache=self._tasks_cache)
        except TaskSetBroken as error:
            raise TaskRefused("task.broken", str(error)) from error
        except OSError as error:
            raise SandboxFailed(
                "sandbox.no_tree", f"the tree of {exam.task.name} cannot be written: {error}"
            ) from error

    def _lay_tests(self, exam: _Exam) -> None:
        try:
            overlay_tests(exam.task, dest=exam.place.tree, cache=self._tasks_cache)
        except TaskSetBroken as error:
            raise TaskRefused("task.broken", str(error)) from error
        except OSError as error:
            raise SandboxFailed("sandbox.no_tree", f"the tests of {exam.task.name} cannot be laid: {error}") from error

    async def _run_tests(self, exam: _Exam) -> tuple[SandboxResult, bytes]:
        report = exam.place.scratch / "report.jsonl"
        places = Places(python=PurePosixPath(PYTHON), site=SITE, tree=WORKSPACE, report=REPORT)
        spec = self._spec(exam, command=verify_command(exam.task, places=places), report=report)
        with report.open("xb+") as file:
            result = await self._sandboxes.run(spec)
            return result, file.read(MOST_REPORT_BYTES)

    def _spec(self, exam: _Exam, *, command: VerifyCommand, report: Path) -> SandboxSpec:
        limits = exam.limits
        return SandboxSpec(
            name=exam.place.name,
            argv=command.argv,
            scratch=exam.place.scratch,
            limits=SandboxLimits(
                wall_s=min(command.limit_s, limits.grading_s or command.limit_s),
                memory_bytes=limits.memory_bytes or DEFAULT_MEMORY_BYTES,
                processes=limits.processes or DEFAULT_PROCESSES,
                kept_output_bytes=KEPT_OUTPUT_BYTES,
                output_bytes=MOST_OUTPUT_BYTES,
            ),
            mounts=(
                Mount(exam.place.tree, WORKSPACE, is_writable=True),
                Mount(report, REPORT, is_writable=True),
                Mount(self._tasks_cache / "site", SITE),
            ),
        )

    def _task(self, finished: ev.RolloutFinished) -> Task:
        name, folder = finished.identity.task, finished.task_set
        task = self._find(folder, name=name)
        if task is None or task.digest != finished.task_digest:
            self._task_sets.pop(folder, None)  # it may have been made anew since
            task = self._find(folder, name=name)
        if task is None:
            raise TaskRefused("task.unknown", f"{folder} has no task {name!r}")
        if task.digest != finished.task_digest:
            detail = f"{name} in {folder} is {task.digest[:12]} here, the rollout had {finished.task_digest[:12]}"
            raise TaskRefused("task.digest_mismatch", f"{detail}; give all services the same task set")
        return task

    def _find(self, folder: str, *, name: str) -> Task | None:
        if folder not in self._task_sets:
            try:
                self._task_sets[folder] = load_task_set(Path(folder))
            except TaskSetBroken as error:
                raise TaskRefused("task.set_broken", str(error)) from error
        return self._task_sets[folder].by_name.get(name)


def _refused_patch(task: Task, *, wall_s: float) -> Grade:
    return Grade(
        is_passed=False,
        tests=tuple(ev.TestResult(test=test, outcome=ev.TEST_OUTCOME_MISSING) for test in task.listed_tests),
        failure=failure(pb.OWNER_POLICY, "policy.patch_does_not_apply", "the patch does not apply to the task's tree"),
        output=b"",
        wall_s=wall_s,
        cpu_s=None,
    )


def _grade(task: Task, *, result: SandboxResult, report: bytes, wall_s: float) -> Grade:
    run = VerifyRun(
        report=report or None,
        has_timed_out=result.ending is Ending.OUT_OF_TIME,
        output=result.output.decode(errors="replace"),
        cpu_s=result.cpu_s or 0.0,
    )
    try:
        verdict = judge(task.listed_tests, run=run)
    except VerifierBroken as error:
        raise VerifierFailed("grader.verifier_failed", f"{task.name}: {error}") from error
    return Grade(
        is_passed=verdict.is_passed,
        tests=tuple(_test_result(each) for each in verdict.results),
        failure=_own_failure(result, verdict=verdict),
        output=result.output,
        wall_s=wall_s,
        cpu_s=result.cpu_s,
    )


def _own_failure(result: SandboxResult, *, verdict: Verdict) -> pb.Failure | None:
    """What the policy's code did beyond failing tests."""
    if result.ending in _ENDINGS:
        return failure(pb.OWNER_POLICY, f"policy.tests_{result.ending.value}", _ENDINGS[result.ending])
    if not verdict.is_passed and verdict.num_passed == len(verdict.results):
        return failure(pb.OWNER_POLICY, "policy.tests_broken_off", verdict.reason)
    return None


def _test_result(result: ListedResult) -> ev.TestResult:
    outcome = _OUTCOMES.get(result.outcome, ev.TEST_OUTCOME_FAILED)
    return ev.TestResult(test=result.node_id, outcome=outcome, duration_s=result.duration_s)
