"""Checks of what `make setup` brings and of what a run names: base root, harnesses, task set."""

from pathlib import Path

from rein_bus.errors import ReinError
from rein_cli.checks import Check, fine, wrong
from rein_harnesses import HarnessNotInstalled, harness_names, load_harness
from rein_harnesses.install import installed_runtime
from rein_sandboxes.root import find_root
from rein_tasks import Split, TaskSetBroken, load_task_set


def base_root(home: Path) -> Check:
    try:
        return fine("base root", str(find_root(home)))
    except ReinError as error:
        return wrong("base root", error.detail, remedy="make setup brings it")


def harnesses(home: Path) -> list[Check]:
    """One check for each shipped harness."""
    return [_harness(name, home=home) for name in harness_names()]


def _harness(name: str, *, home: Path) -> Check:
    harness = load_harness(name)
    try:
        folder = installed_runtime(harness, home=home)
    except HarnessNotInstalled as error:
        return wrong(f"harness {name}", str(error), remedy="make setup brings it too")
    return fine(f"harness {name}", f"version {harness.version}, {folder or 'nothing to install'}")


def task_set(folder: Path) -> Check:
    try:
        tasks = load_task_set(folder)
    except TaskSetBroken as error:
        return wrong("task set", str(error), remedy="name a task set's folder (--task-set DIR)")
    train, heldout = (len(tasks.of_split(split)) for split in (Split.TRAIN, Split.HELDOUT))
    if not train:
        return wrong("task set", f"{folder} has no task in split train", remedy="name another, or make one")
    return fine("task set", f"{folder}: {train} training tasks, {heldout} held out")
