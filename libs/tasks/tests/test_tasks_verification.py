"""A listed test counts only when it was seen to pass: on made-up reports, and on real runs of hostile trees."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rein_tasks.errors import VerifierBroken
from rein_tasks.factory.readmission import repair
from rein_tasks.model import Task
from rein_tasks.subprocess_runner import run_in_subprocess
from rein_tasks.trees import materialise, overlay_tests
from rein_tasks.verification import Outcome, Places, Verdict, VerifyRun, judge, verify_command

MakeTask = Callable[..., Task]
STARTED: dict[str, object] = {"started": True}
ENDED: dict[str, object] = {"ended": 0}


def phases(name: str, setup: str = "passed", call: str = "passed", teardown: str = "passed") -> list[dict[str, object]]:
    outcomes = {"setup": setup, "call": call, "teardown": teardown}
    return [{"id": name, "when": when, "outcome": outcome, "duration_s": 0.5} for when, outcome in outcomes.items()]


def run_of(*events: dict[str, object], has_timed_out: bool = False) -> VerifyRun:
    report = "".join(json.dumps(event) + "\n" for event in events).encode()
    return VerifyRun(report=report, has_timed_out=has_timed_out, output="boom", cpu_s=0.0)


def test_all_listed_tests_seen_to_pass_is_a_pass() -> None:
    verdict = judge(["a", "b"], run=run_of(STARTED, *phases("a"), *phases("b"), ENDED))
    assert verdict.is_passed
    assert verdict.num_passed == 2
    assert verdict.results[0].duration_s == 1.5


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([], Outcome.MISSING),
        (phases("b", call="failed"), Outcome.FAILED),
        (phases("b", setup="failed")[:1], Outcome.ERROR),
        (phases("b", teardown="failed"), Outcome.ERROR),
        (phases("b", setup="skipped")[:1], Outcome.SKIPPED),
        (phases("b", call="xfail"), Outcome.SKIPPED),
        (phases("b")[:2], Outcome.ERROR),
        (phases("b") + phases("b"), Outcome.ERROR),
        (phases("B"), Outcome.MISSING),
    ],
)
def test_anything_but_three_passed_phases_is_no_pass(events: list[dict[str, object]], outcome: Outcome) -> None:
    verdict = judge(["a", "b"], run=run_of(STARTED, *phases("a"), *events, ENDED))
    assert not verdict.is_passed
    assert verdict.results[1].outcome is outcome
    assert "1 of 2 listed tests not passed, first b" in verdict.reason


def test_a_collection_error_fails_everything() -> None:
    verdict = judge(["a"], run=run_of(STARTED, *phases("a"), {"collect_error": "tests/test_x.py"}, ENDED))
    assert verdict.reason == "tests/test_x.py could not be collected"


def test_a_run_without_an_end_is_no_pass() -> None:
    assert "end" in judge(["a"], run=run_of(STARTED, *phases("a"))).reason


def test_a_run_past_its_limit_is_no_pass() -> None:
    assert "limit" in judge(["a"], run=run_of(STARTED, *phases("a"), ENDED, has_timed_out=True)).reason


@pytest.mark.parametrize("report", [None, b"", b"{", b"[]\n"])
def test_a_runner_that_never_started_is_no_verdict(report: bytes | None) -> None:
    with pytest.raises(VerifierBroken, match="boom"):
        judge(["a"], run=VerifyRun(report=report, has_timed_out=False, output="boom", cpu_s=0.0))


class Grading:
    """A tree of the task and its real test run."""

    def __init__(self, task: Task, *, cache: Path, folder: Path, python: Path) -> None:
        self.task = task
        self.tree = folder / "tree"
        self._cache = cache
        self._places = Places(python=python, site=cache / "site", tree=self.tree, report=folder / "report.jsonl")
        materialise(task, dest=self.tree, cache=cache)

    def verdict(self) -> Verdict:
        overlay_tests(self.task, dest=self.tree, cache=self._cache)
        run = run_in_subprocess(verify_command(self.task, places=self._places))
        return judge(self.task.listed_tests, run=run)


@pytest.fixture
def start(cache: Path, tmp_path: Path, python: Path) -> Callable[[Task], Grading]:
    return lambda task: Grading(task, cache=cache, folder=tmp_path, python=python)


Start = Callable[[Task], Grading]


def test_the_faulty_tree_fails_and_the_repaired_one_passes(make_task: MakeTask, start: Start) -> None:
    grading = start(make_task())
    faulty = grading.verdict()
    assert [result.outcome for result in faulty.results] == [Outcome.FAILED, Outcome.PASSED]
    repair(grading.task, tree=grading.tree)
    assert grading.verdict().is_passed


def test_a_broken_import_fails_every_listed_test(make_task: MakeTask, start: Start) -> None:
    grading = start(make_task())
    (grading.tree / "tiny" / "core.py").write_text("def broken(:\n")
    verdict = grading.verdict()
    assert not verdict.is_passed
    assert verdict.num_passed == 0


def test_skipped_expected_failures_and_tests_that_are_gone_do_not_pass(make_task: MakeTask, start: Start) -> None:
    names = ("test_skipped", "test_expected_to_fail", "test_total")
    grading = start(make_task(listed_tests=tuple(f"tests/test_core.py::{name}" for name in names)))
    seen = [result.outcome for result in grading.verdict().results]
    assert seen == [Outcome.SKIPPED, Outcome.SKIPPED, Outcome.PASSED]
    grading.task = make_task(listed_tests=("tests/test_core.py::test_total", "tests/test_core.py::test_gone"))
    verdict = grading.verdict()
    assert verdict.results[1].outcome is Outcome.MISSING
    assert not verdict.is_passed


def test_files_of_the_agent_do_not_steer_the_run(make_task: MakeTask, start: Start) -> None:
    grading = start(make_task())
    (grading.tree / "pytest.ini").write_text("[pytest]\naddopts = --co\n")
    (grading.tree / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--co'\n")
    for name in ("conftest", "pytest", "_pytest", "json", "sitecustomize", "pytest_runner", "tests"):
        (grading.tree / f"{name}.py").write_text("import os\nos._exit(0)\n")
    assert [result.outcome for result in grading.verdict().results] == [Outcome.FAILED, Outcome.PASSED]


def test_leaving_early_with_status_zero_is_no_pass(make_task: MakeTask, start: Start) -> None:
    grading = start(make_task())
    (grading.tree / "tiny" / "core.py").write_text("import os\nos._exit(0)\n")
    assert "end" in grading.verdict().reason


def test_a_hanging_test_is_ended_at_the_limit(make_task: MakeTask, start: Start) -> None:
    grading = start(make_task(limit_s=8.0))
    (grading.tree / "tiny" / "core.py").write_text("import signal\nsignal.pause()\n")
    assert "limit" in grading.verdict().reason
