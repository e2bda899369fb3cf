"""Make a task set from its recipe: trace, mutate, admit, until each split has its number or its lines are used up.

The order of trials is fixed by the recipe's seed. Packages take turns, and each offers a line with
the operator that has been admitted least, so that no package and no operator fills the set; what remains uneven is
what the packages do not offer.
"""

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rein_tasks.factory.admission import Candidate, admit, candidates
from rein_tasks.factory.workshop import Workshop
from rein_tasks.model import Split, Task, TaskSet
from rein_tasks.operators import WRONG_FOR, Kind, sites
from rein_tasks.task_set import Recipe

Report = Callable[[str], None]
KINDS = (Kind.COMPARISON, Kind.ARITHMETIC)
MAX_TASKS_PER_FILE = 20


@dataclass(slots=True)
class _Bench:
    """A package with its untried candidates by operator, the next one last."""

    workshop: Workshop
    waiting: dict[str, list[Candidate]]
    per_file: Counter[str] = field(default_factory=Counter)

    def next_candidate(self, admitted: Counter[str]) -> Candidate | None:
        """One with the operator that the split has fewest of."""
        operators = sorted((operator for operator in self.waiting if self.waiting[operator]), key=admitted.__getitem__)
        for operator in operators:
            waiting = self.waiting[operator]
            while waiting:
                candidate = waiting.pop()
                if self.per_file[candidate.path] < MAX_TASKS_PER_FILE:
                    return candidate
        return None


def make_tasks(recipe: Recipe, *, cache: Path, python: Path, report: Report) -> TaskSet:
    """The whole set, tasks ordered by split, package, path and line."""
    tasks: list[Task] = []
    with tempfile.TemporaryDirectory(prefix="rein-factory-") as scratch:
        for split in Split:
            with ExitStack() as open_shops:
                benches = []
                for package in (package for package in recipe.packages if package.split == split):
                    workshop = Workshop(package, cache=cache, folder=Path(scratch, package.name), python=python)
                    benches.append(_bench(open_shops.enter_context(workshop), seed=recipe.seed, report=report))
                tasks += _fill(benches, split=split, num_tasks=recipe.num_tasks.get(split, 0), report=report)
    tasks.sort(key=lambda task: (task.split, task.package.name, task.path, task.line))
    return TaskSet(name=recipe.name, packages=recipe.packages, tasks=tuple(tasks))


def _bench(workshop: Workshop, *, seed: int, report: Report) -> _Bench:
    found = {path: [site for site in sites(source) if site.kind in KINDS] for path, source in workshop.modules()}
    chosen = candidates(workshop.coverage(), sites=found)
    report(f"{workshop.package.name}: {len(chosen)} candidate lines")
    random.Random(f"{seed} {workshop.package.name}").shuffle(chosen)
    waiting: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in chosen:
        waiting[candidate.site.operator].append(candidate)
    return _Bench(workshop=workshop, waiting=dict(sorted(waiting.items())))


def _fill(benches: Sequence[_Bench], *, split: Split, num_tasks: int, report: Report) -> list[Task]:
    """Packages take turns; those with nothing left drop out."""
    tasks: list[Task] = []
    rights: Counter[str] = Counter()
    wrongs: Counter[str] = Counter()
    num_tried = 0
    active = list(benches)
    while active and len(tasks) < num_tasks:
        bench = active.pop(0)
        candidate = bench.next_candidate(rights)
        if candidate is None:
            continue
        active.append(bench)
        num_tried += 1
        prefer = sorted(WRONG_FOR[candidate.site.operator], key=wrongs.__getitem__)
        task = admit(candidate, workshop=bench.workshop, prefer=prefer)
        if task:
            tasks.append(task)
            rights[task.fault.right] += 1
            wrongs[task.fault.wrong] += 1
            bench.per_file[task.path] += 1
        report(f"{split}: {len(tasks)} of {num_tasks} admitted, {num_tried} lines tried")
    return tasks
