"""Make a task set from its recipe: trace, mutate, admit, until each split has its number or its lines are used up.

The order of trials is fixed by the recipe's seed. Packages take turns, and within a package the operators take turns, so
that no package and no operator fills the set; what remains uneven is what the packages do not offer.
"""

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from rein_tasks.factory.admission import Candidate, admit, candidates
from rein_tasks.factory.workshop import Workshop
from rein_tasks.model import Package, Split, Task, TaskSet
from rein_tasks.operators import WRONG_FOR, Kind, sites
from rein_tasks.task_set import Recipe

Report = Callable[[str], None]
KINDS = (Kind.COMPARISON, Kind.ARITHMETIC)
MAX_TASKS_PER_FILE = 20


@dataclass(slots=True)
class _Bench:
    """A package with its untried candidates, next one first."""

    workshop: Workshop
    waiting: list[Candidate]
    per_file: Counter[str] = field(default_factory=Counter)


def make_tasks(recipe: Recipe, *, cache: Path, python: Path, report: Report) -> TaskSet:
    """The whole set, tasks ordered by split, package, path and line."""
    tasks: list[Task] = []
    with tempfile.TemporaryDirectory(prefix="rein-factory-") as scratch:
        for split in Split:
            packages = [package for package in recipe.packages if package.split == split]
            benches = [
                _bench(
                    package,
                    cache=cache,
                    folder=Path(scratch, package.name),
                    python=python,
                    recipe=recipe,
                    report=report,
                )
                for package in packages
            ]
            tasks += _fill(benches, split=split, num_tasks=recipe.num_tasks.get(split, 0), report=report)
    tasks.sort(key=lambda task: (task.split, task.package.name, task.path, task.line))
    return TaskSet(name=recipe.name, packages=recipe.packages, tasks=tuple(tasks))


def _bench(package: Package, *, cache: Path, folder: Path, python: Path, recipe: Recipe, report: Report) -> _Bench:
    folder.mkdir()
    workshop = Workshop(package, cache=cache, folder=folder, python=python)
    workshop.set_up()
    coverage = workshop.coverage()
    found = {path: [site for site in sites(source) if site.kind in KINDS] for path, source in workshop.modules()}
    chosen = candidates(workshop, coverage=coverage, sites=found)
    report(f"{package.name}: {coverage.num_tests} tests, {len(chosen)} candidate lines")
    return _Bench(workshop=workshop, waiting=in_turns(chosen, seed=f"{recipe.seed} {package.name}"))


def in_turns(chosen: Sequence[Candidate], *, seed: str) -> list[Candidate]:
    """Shuffled, then dealt so that the right operators alternate."""
    shuffled = list(chosen)
    random.Random(seed).shuffle(shuffled)
    by_operator: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in shuffled:
        by_operator[candidate.site.operator].append(candidate)
    columns = [by_operator[operator] for operator in sorted(by_operator)]
    return [candidate for row in zip_longest(*columns) for candidate in row if candidate is not None]


def _fill(benches: Sequence[_Bench], *, split: Split, num_tasks: int, report: Report) -> list[Task]:
    tasks: list[Task] = []
    wrong_used: Counter[str] = Counter()
    num_tried = 0
    for bench, candidate in _turns(benches):
        if len(tasks) >= num_tasks:
            break
        if bench.per_file[candidate.path] >= MAX_TASKS_PER_FILE:
            continue
        num_tried += 1
        prefer = sorted(WRONG_FOR[candidate.site.operator], key=lambda wrong: wrong_used[wrong])
        task = admit(candidate, workshop=bench.workshop, prefer=prefer)
        if task and task.name not in {other.name for other in tasks}:
            tasks.append(task)
            wrong_used[task.fault.wrong] += 1
            bench.per_file[task.path] += 1
        report(f"{split}: {len(tasks)} of {num_tasks} admitted, {num_tried} lines tried")
    return tasks


def _turns(benches: Sequence[_Bench]) -> Iterator[tuple[_Bench, Candidate]]:
    while any(bench.waiting for bench in benches):
        for bench in benches:
            if bench.waiting:
                yield bench, bench.waiting.pop(0)
