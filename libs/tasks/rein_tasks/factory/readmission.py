"""Check that the tasks of a set still are what they were admitted as, on this machine."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import Task, TaskSet
from rein_tasks.subprocess_runner import run_in_subprocess
from rein_tasks.trees import materialise, overlay_tests
from rein_tasks.verification import Places, Verdict, judge, verify_command


def readmit(task_set: TaskSet, *, cache: Path, python: Path, report: Callable[[str], None]) -> list[str]:
    """One line for each task whose fault goes unnoticed or whose original does not pass."""
    failures = []
    for number, task in enumerate(task_set.tasks, start=1):
        failure = check(task, cache=cache, python=python)
        if failure:
            failures.append(f"{task.name}: {failure}")
        report(f"{number} of {len(task_set.tasks)} tasks checked, {len(failures)} failed")
    return failures


def check(task: Task, *, cache: Path, python: Path) -> str:
    """Empty when the listed tests fail on the faulty tree and pass once the line is repaired."""
    with tempfile.TemporaryDirectory(prefix="rein-check-") as scratch:
        tree = Path(scratch, "tree")
        places = Places(python=python, site=cache / "site", tree=tree, report=Path(scratch, "report.jsonl"))
        materialise(task, dest=tree, cache=cache)
        overlay_tests(task, dest=tree, cache=cache)
        if _verdict(task, places=places).is_passed:
            return "passes with its fault"
        repair(task, tree=tree)
        verdict = _verdict(task, places=places)
        return "" if verdict.is_passed else f"fails without its fault: {verdict.reason}"


def repair(task: Task, *, tree: Path) -> None:
    """Undo the fault the way a solver can: the first ` WRONG ` of the line becomes ` RIGHT `."""
    file = tree / task.path
    lines = file.read_bytes().split(b"\n")
    fault = task.fault
    repaired = lines[fault.line - 1].decode().replace(f" {fault.wrong} ", f" {fault.right} ", 1)
    if repaired != fault.old:
        raise TaskSetBroken(
            "is not restored by replacing the first wrong operator",
            task=task.name,
            file=task.path,
            field="fault.new",
            remedy="regenerate the task set",
        )
    lines[fault.line - 1] = repaired.encode()
    file.write_bytes(b"\n".join(lines))


def _verdict(task: Task, *, places: Places) -> Verdict:
    return judge(task.listed_tests, run=run_in_subprocess(verify_command(task, places=places)))
