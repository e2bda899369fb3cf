"""Trees on disk: the one an agent gets, and the hidden tests laid over the one it leaves.

`materialise` makes plain files only: no history, no tests; the runner makes the single commit. `overlay_tests` works
on a tree the agent has written, so it follows no link there and replaces whatever stands in the way of a hidden test.
Neither runs anything.
"""

import shutil
from pathlib import Path, PurePosixPath

from rein_tasks.cache import package_folder
from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import Fault, Package, Task


def materialise(task: Task, *, dest: Path, cache: Path) -> None:
    """Write the faulty tree into `dest`, which must be absent or empty."""
    source = package_folder(task.package, cache=cache) / "source"
    if dest.exists() and any(dest.iterdir()):
        raise FileExistsError(f"{dest} is not empty")
    shutil.copytree(source, dest, dirs_exist_ok=True, copy_function=shutil.copyfile)
    plant(task, tree=dest)


def plant(task: Task, *, tree: Path) -> None:
    """Put the fault into a pristine tree; raises `TaskSetBroken` where the line is not the task's."""
    file = tree / task.path
    if not file.is_file():
        raise TaskSetBroken(
            "is not in the package", task=task.name, file=task.path, field="path", remedy="regenerate the task set"
        )
    file.write_bytes(with_fault(file.read_bytes(), fault=task.fault, task=task.name, path=task.path))


def with_fault(source: bytes, *, fault: Fault, task: str, path: str) -> bytes:
    """The module with the faulty line in place of the original one."""
    lines = source.split(b"\n")
    if fault.line > len(lines) or lines[fault.line - 1] != fault.old.encode():
        raise TaskSetBroken(
            f"line {fault.line} is not {fault.old!r}",
            task=task,
            file=path,
            field="fault.old",
            remedy="regenerate the task set",
        )
    lines[fault.line - 1] = fault.new.encode()
    return b"\n".join(lines)


def overlay_tests(task: Task, *, dest: Path, cache: Path) -> None:
    """Lay the hidden tests over a tree. Earlier contents of the tests' places are gone afterwards."""
    lay_tests(task.package, dest=dest, cache=cache)


def lay_tests(package: Package, *, dest: Path, cache: Path) -> None:
    """What `overlay_tests` does, for any task of the package."""
    tests = package_folder(package, cache=cache) / "tests"
    for target in package.tests.values():
        _clear(dest, target)
    for file in sorted(path for path in tests.rglob("*") if path.is_file()):
        place = _clear(dest, str(file.relative_to(tests)))
        shutil.copyfile(file, place)


def _clear(dest: Path, relative: str) -> Path:
    """An empty place for `relative`, below real folders only."""
    *folders, name = PurePosixPath(relative).parts
    place = dest
    for folder in folders:
        place = place / folder
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(exist_ok=True)
    place = place / name
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()  # a pipe or socket
    return place
