"""The on-disk format of a task set, read and written.

<set>/task_set.toml   name and packages (written by hand; the recipe the factory works from)
<set>/tasks.jsonl     one task a line (written by the factory)
<set>/summary.json    counts and chance level (written by the factory, read by people)
The packages themselves are not part of a set: `rein_tasks.cache` brings them from the package index.
"""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import FORMAT, Package, Task, TaskSet

RECIPE_FILE = "task_set.toml"
TASKS_FILE = "tasks.jsonl"
SUMMARY_FILE = "summary.json"


class Recipe(BaseModel):
    """Contents of task_set.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    name: str
    seed: int = 0
    """Order in which the factory tries lines."""
    num_tasks: dict[str, int] = {}
    """Tasks the factory aims for, by split."""
    build_backends: tuple[str, ...] = ()
    """Distributions the packages' own build files import; needed only to download them."""
    packages: tuple[Package, ...]


def load_task_set(folder: Path) -> TaskSet:
    """Read and check a task set; raises `TaskSetBroken`. Looks at no package."""
    recipe = load_recipe(folder)
    packages = {package.name: package for package in recipe.packages}
    file = folder / TASKS_FILE
    tasks: dict[str, Task] = {}
    for number, line in enumerate(_read(file).splitlines(), start=1):
        task = _task(line, place=f"{file} line {number}", packages=packages)
        if task.name in tasks:
            raise TaskSetBroken(
                "occurs twice",
                task=task.name,
                file=f"{file} line {number}",
                field="name",
                remedy="give it another name",
            )
        tasks[task.name] = task
    return TaskSet(name=recipe.name, packages=recipe.packages, tasks=tuple(tasks.values()))


def load_recipe(folder: Path) -> Recipe:
    """Read task_set.toml alone (the factory's input)."""
    file = folder / RECIPE_FILE
    try:
        recipe = Recipe.model_validate(tomllib.loads(_read(file)))
    except tomllib.TOMLDecodeError as error:
        raise TaskSetBroken(str(error), file=str(file), field="(syntax)", remedy="correct the TOML") from error
    except ValidationError as error:
        raise _invalid(error, file=str(file)) from error
    if recipe.format != FORMAT:
        raise TaskSetBroken(
            f"is {recipe.format}", file=str(file), field="format", remedy=f"this version reads format {FORMAT}"
        )
    return recipe


def save_tasks(folder: Path, *, task_set: TaskSet) -> None:
    """Write tasks.jsonl and summary.json beside the recipe."""
    _write(folder / TASKS_FILE, (_line(task) for task in task_set.tasks))
    _write(folder / SUMMARY_FILE, [json.dumps(task_set.summary(), indent=2) + "\n"])


def _line(task: Task) -> str:
    body = task.model_dump(mode="json") | {"package": task.package.name}
    return json.dumps(body, separators=(", ", ": ")) + "\n"


def _write(file: Path, lines: Iterable[str]) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(file)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TaskSetBroken(
            "is missing", file=str(file), field="(file)", remedy="give the folder of a task set"
        ) from error


def _task(line: str, *, place: str, packages: dict[str, Package]) -> Task:
    try:
        body = json.loads(line)
    except json.JSONDecodeError as error:
        raise TaskSetBroken(str(error), file=place, field="(syntax)", remedy="one JSON object a line") from error
    if not isinstance(body, dict):
        raise TaskSetBroken("is no object", file=place, field="(syntax)", remedy="one JSON object a line")
    name = str(body.get("name", ""))
    package = packages.get(str(body.get("package")))
    if package is None:
        raise TaskSetBroken(
            f"{body.get('package')!r} is no package of this set",
            task=name,
            file=place,
            field="package",
            remedy=f"name one of {RECIPE_FILE}: {', '.join(packages)}",
        )
    try:
        return Task.model_validate(body | {"package": package})
    except ValidationError as error:
        raise _invalid(error, file=place, task=name) from error


def _invalid(error: ValidationError, *, file: str, task: str = "") -> TaskSetBroken:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return TaskSetBroken(first["msg"], task=task, file=file, field=field, remedy="correct the value")
