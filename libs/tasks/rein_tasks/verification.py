"""How a task's listed tests are run, and how the result is read.

Pure: a command out, a report's bytes in. Whoever runs the command (a plain subprocess in the factory, a sandbox in the
grader) supplies a tree with the hidden tests laid over, a test site (`rein_tasks.grading_site`) and a place
for the report outside the tree.
The one rule: each listed test must be SEEN to pass. A test that is missing from the report, skipped, expected to fail,
or in error in any phase has not passed; neither has anything in a run that did not come to its end.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath

from rein_tasks.errors import VerifierBroken
from rein_tasks.model import Task

RUNNER_FILE = "pytest_runner.py"
PHASES = ("setup", "call", "teardown")


@dataclass(frozen=True, slots=True)
class VerifyCommand:
    """What to execute. Needs no network, home or environment; writes only `report` (and what the tests write)."""

    argv: tuple[str, ...]
    report: PurePath
    limit_s: float


@dataclass(frozen=True, slots=True)
class VerifyRun:
    """What came of it. `report` is None when the file was not there."""

    report: bytes | None
    has_timed_out: bool
    output: str
    cpu_s: float


RunTests = Callable[[VerifyCommand], VerifyRun]


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class ListedResult:
    """One listed test, as seen. `duration_s` covers all phases and is 0 for a missing test."""

    node_id: str
    outcome: Outcome
    duration_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is empty exactly when the task passed; `is_whole` says that the run came to its end in time."""

    results: tuple[ListedResult, ...]
    reason: str
    is_whole: bool

    @property
    def is_passed(self) -> bool:
        return not self.reason

    @property
    def num_passed(self) -> int:
        return sum(result.outcome is Outcome.PASSED for result in self.results)


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are, as the process that runs the tests sees them (inside a sandbox: its paths)."""

    python: PurePath
    site: PurePath
    tree: PurePath
    report: PurePath


def verify_command(task: Task, *, places: Places) -> VerifyCommand:
    """The command that runs exactly the task's listed tests."""
    confcut = places.tree / task.package.tests_folder
    return command_for(task.listed_tests, places=places, confcut=confcut, limit_s=task.limit_s)


def command_for(node_ids: Sequence[str], *, places: Places, confcut: PurePath, limit_s: float) -> VerifyCommand:
    """The same for any node ids. -I and -S keep the environment and the interpreter's own packages out."""
    script = places.site / RUNNER_FILE
    start = (places.python, "-I", "-S", "-B", script, places.report, places.tree, confcut)
    return VerifyCommand(argv=(*(str(word) for word in start), *node_ids), report=places.report, limit_s=limit_s)


def judge(listed_tests: Sequence[str], *, run: VerifyRun) -> Verdict:
    """Apply the rule; raises `VerifierBroken` where pytest never got to the tree."""
    events = _events(run.report)
    if not any("started" in event for event in events):
        raise VerifierBroken(f"the test runner did not start: {run.output[-500:].strip() or 'no output'}")
    results = tuple(_result(node_id, events=events) for node_id in listed_tests)
    is_whole = not run.has_timed_out and any("ended" in event for event in events)
    reason = _broken_off(events, run=run) or _not_passed(results)
    return Verdict(results=results, reason=reason, is_whole=is_whole)


def _broken_off(events: Sequence[Mapping[str, object]], *, run: VerifyRun) -> str:
    if run.has_timed_out:
        return "the tests ran past their time limit"
    broken = [str(event["collect_error"]) for event in events if "collect_error" in event]
    if broken:
        return f"{broken[0]} could not be collected"
    return "" if any("ended" in event for event in events) else "the test run did not come to its end"


def _not_passed(results: Sequence[ListedResult]) -> str:
    left = [result for result in results if result.outcome is not Outcome.PASSED]
    if not left:
        return ""
    return f"{len(left)} of {len(results)} listed tests not passed, first {left[0].node_id}: {left[0].outcome}"


def _result(node_id: str, *, events: Sequence[Mapping[str, object]]) -> ListedResult:
    phases = [event for event in events if event.get("id") == node_id]
    seconds = sum(value for phase in phases if isinstance(value := phase.get("duration_s"), float))
    return ListedResult(node_id=node_id, outcome=_outcome(phases), duration_s=seconds)


def _outcome(phases: Sequence[Mapping[str, object]]) -> Outcome:
    if not phases:
        return Outcome.MISSING
    seen = [(phase.get("when"), phase.get("outcome")) for phase in phases]
    if ("call", "failed") in seen:
        return Outcome.FAILED
    if any(outcome == "failed" for _, outcome in seen):
        return Outcome.ERROR
    if any(outcome in {"skipped", "xfail"} for _, outcome in seen):
        return Outcome.SKIPPED
    if seen == [(phase, "passed") for phase in PHASES]:
        return Outcome.PASSED
    return Outcome.ERROR


def _events(report: bytes | None) -> list[Mapping[str, object]]:
    """Lines that are JSON objects; a line cut off by a killed process is none."""
    events: list[Mapping[str, object]] = []
    for line in (report or b"").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events
