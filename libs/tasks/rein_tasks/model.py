"""What a repository task is.

A task is one wrong operator in one line of a real package, and the package's own tests that notice it. Values here
are frozen and complete: with the package's source archive they determine the tree an agent gets, the tests that
grade it and, through `Task.digest`, the name under which events refer to it.
This module reads no files and runs nothing.
"""

import hashlib
import json
from collections import Counter
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rein_tasks.operators import Kind

FORMAT = 1
INSTRUCTION = "Line {line} of {path} has one wrong operator. Repair it."


class Split(StrEnum):
    """Training tasks and held-out tasks never share a package."""

    TRAIN = "train"
    HELDOUT = "heldout"


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError("must be a relative path without '..'")
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Package(_Frozen):
    """A source archive, and which of its files become the agent's tree and the hidden tests."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Project name on the package index."""
    version: str
    licence: str
    """SPDX expression; permissive ones only."""
    archive: str
    """File name of the source archive."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the source archive."""
    split: Split
    """All tasks of a package are on one side."""
    source: dict[RelativePath, RelativePath]
    """Path in the archive -> path in the tree. Test files below these are left out."""
    tests: dict[RelativePath, RelativePath]
    """Path in the archive -> path in the tree, laid over it for grading only."""
    requirements: tuple[str, ...] = ()
    """Pinned distributions the package or its tests import, installed into the test site."""
    leave: tuple[RelativePath, ...] = ()
    """Files of the tree that the fault factory leaves alone."""

    @property
    def folder_name(self) -> str:
        return f"{self.name}-{self.version}-{self.sha256[:12]}"

    @property
    def tests_folder(self) -> str:
        """The folder of the tree that holds all hidden tests (and the only one whose conftest.py counts)."""
        folders = [
            PurePosixPath(to) if not to.endswith(".py") else PurePosixPath(to).parent for to in self.tests.values()
        ]
        first = folders[0]
        while any(first != folder and first not in folder.parents for folder in folders):
            first = first.parent
        return str(first)


class Fault(_Frozen):
    """One operator replaced in one line. `old` and `new` are the whole line without its line end."""

    line: int = Field(ge=1)
    kind: Kind
    right: str
    wrong: str
    old: str
    new: str


class Chance(_Frozen):
    """What a blind choice of operator is worth: `num_passing` of the `num_tried` replacements pass."""

    num_passing: int = Field(ge=1)
    num_tried: int = Field(ge=1)

    @property
    def pass_rate(self) -> float:
        return self.num_passing / self.num_tried


class Task(_Frozen):
    """A fault, the tests that must be seen to pass, and the wall-clock limit for running them."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    package: Package
    path: RelativePath
    fault: Fault
    listed_tests: tuple[str, ...] = Field(min_length=1)
    """pytest node ids relative to the tree."""
    limit_s: float = Field(gt=0)
    chance: Chance

    @property
    def split(self) -> Split:
        return self.package.split

    @property
    def line(self) -> int:
        return self.fault.line

    @property
    def instruction(self) -> str:
        return INSTRUCTION.format(line=self.fault.line, path=self.path)

    @cached_property
    def digest(self) -> str:
        """sha256 over everything that decides what is run and how it is graded."""
        body = {"format": FORMAT, **self.model_dump(mode="json", exclude={"chance"})}
        return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class TaskSet(_Frozen):
    """All tasks of a folder, in the order of its file."""

    name: str
    packages: tuple[Package, ...]
    tasks: tuple[Task, ...]

    @cached_property
    def by_name(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks}

    def of_split(self, split: Split | str) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if task.split == split)

    def summary(self) -> dict[str, object]:
        """Counts and chance level of each split, as written beside the tasks."""
        return {str(split): _summary(self.of_split(split)) for split in Split}


def _summary(tasks: tuple[Task, ...]) -> dict[str, object]:
    rates = [task.chance.pass_rate for task in tasks]
    return {
        "num_tasks": len(tasks),
        "chance_pass_rate": round(sum(rates) / len(rates), 4) if rates else None,
        "packages": dict(sorted(Counter(task.package.name for task in tasks).items())),
        "kinds": dict(sorted(Counter(str(task.fault.kind) for task in tasks).items())),
        "right_operators": dict(sorted(Counter(task.fault.right for task in tasks).items())),
        "wrong_operators": dict(sorted(Counter(task.fault.wrong for task in tasks).items())),
    }
