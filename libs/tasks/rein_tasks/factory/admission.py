"""Which faults become tasks.

A fault is admitted when the package's own tests tell it from the original: at least one listed test fails with it and
all pass without it, in each of two runs (the trial, and one with the listed tests alone). Every other replacement of
the operator is tried on the same tests, so the pass rate of a blind guess is known; a fault that many guesses repair,
or one of whose replacements hangs, is turned down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from rein_tasks.factory.coverage import Coverage, file_of
from rein_tasks.model import Chance, Fault, Package, Task
from rein_tasks.operators import OPERATORS, WRONG_FOR, Kind, Site, is_sed_restorable

NUM_PROBED = 12
NUM_LISTED = 6
NUM_KEPT_PASSING = 2
MAX_PASSING = {Kind.COMPARISON: 2, Kind.ARITHMETIC: 1, Kind.BOOLEAN: 1, Kind.MEMBERSHIP: 1}
TASK_LIMIT_S = 20.0
MAX_LINE = 2000
MAX_LINE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Trial:
    """What the tests did on one version of the tree; nothing passed in a run that did not come to its end."""

    passed: frozenset[str]
    has_timed_out: bool


class Trials(Protocol):
    """Where tests are tried on versions of a package's tree."""

    @property
    def package(self) -> Package: ...

    def trial(self, path: str, *, line: int, text: str, tests: Sequence[str]) -> Trial: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A site that some tests reach."""

    path: str
    site: Site
    tests: tuple[str, ...]
    """Reach the line; those with fewest lines first, all of one file."""
    bystanders: tuple[str, ...]
    """Of the same file, and do not reach it."""


def candidates(coverage: Coverage, *, sites: Mapping[str, Sequence[Site]]) -> list[Candidate]:
    """Sites fit for a task: reached, alone of their kind on a line of moderate length, and restorable by sed."""
    found = []
    for path, of_path in sites.items():
        for site in of_path:
            tests = _of_one_file(coverage.tests_at.get((path, site.line), ()))
            if tests and is_fit(site, among=of_path):
                others = (test for test in coverage.tests_of[file_of(tests[0])] if test not in tests)
                bystanders = tuple(others)[:NUM_KEPT_PASSING]
                found.append(Candidate(path=path, site=site, tests=tests[:NUM_PROBED], bystanders=bystanders))
    return found


def is_fit(site: Site, *, among: Sequence[Site]) -> bool:
    on_line = [other for other in among if other.line == site.line]
    is_alone = len(on_line) <= 2 and sum(other.kind == site.kind for other in on_line) == 1
    is_small = site.line <= MAX_LINE and len(site.text) <= MAX_LINE_LENGTH
    return is_alone and is_small and any(is_sed_restorable(site, wrong) for wrong in WRONG_FOR[site.operator])


def admit(candidate: Candidate, *, workshop: Trials, prefer: Sequence[str]) -> Task | None:
    """Try the candidate's wrong operators in the order of `prefer`; the first that qualifies makes the task."""
    site = candidate.site
    trials: dict[str, Trial] = {}
    for wrong in prefer:
        if not is_sed_restorable(site, wrong):
            continue
        if not _notices(wrong, candidate, workshop=workshop, trials=trials):
            continue
        for operator in OPERATORS[site.kind]:
            if operator not in trials:
                trials[operator] = _try(operator, candidate, workshop=workshop, tests=candidate.tests)
        if any(trial.has_timed_out for trial in trials.values()):
            return None
        listed = choose_listed(candidate, wrong=wrong, trials=trials)
        chance = chance_of(listed, wrong=wrong, right=site.operator, trials=trials)
        if chance.num_passing > MAX_PASSING[site.kind]:
            continue
        if _is_steady(candidate, wrong=wrong, listed=listed, workshop=workshop):
            return _task(candidate, wrong=wrong, listed=listed, chance=chance, workshop=workshop)
    return None


def choose_listed(candidate: Candidate, *, wrong: str, trials: Mapping[str, Trial]) -> tuple[str, ...]:
    """At most `NUM_LISTED`: those that notice the fault or tell another replacement, and a few that pass anyway."""
    right = candidate.site.operator
    sound = [test for test in candidate.tests if test in trials[right].passed]
    others = [operator for operator in trials if operator not in {wrong, right}]
    noticing = [test for test in sound if test not in trials[wrong].passed]
    passing = [test for test in sound if test in trials[wrong].passed]
    chosen: list[str] = []
    told: set[str] = set()
    for test in noticing + passing:
        news = {other for other in others if test not in trials[other].passed} - told
        if news or not chosen:
            chosen.append(test)
            told |= news
    spare = [test for test in noticing if test not in chosen][: max(0, NUM_LISTED - NUM_KEPT_PASSING - len(chosen))]
    kept = [test for test in [*passing, *candidate.bystanders] if test not in chosen][:NUM_KEPT_PASSING]
    return tuple((chosen + spare + kept)[:NUM_LISTED])


def chance_of(listed: Sequence[str], *, wrong: str, right: str, trials: Mapping[str, Trial]) -> Chance:
    """Over the listed tests that were part of the trials; bystanders do not reach the line."""
    others = [operator for operator in trials if operator != wrong]
    num_passing = sum(trials[operator].passed.issuperset(set(listed) & trials[right].passed) for operator in others)
    return Chance(num_passing=num_passing, num_tried=len(others))


def _of_one_file(tests: Sequence[str]) -> tuple[str, ...]:
    """Those of the file that has most of them: one module to import."""
    by_file: dict[str, list[str]] = {}
    for test in tests:
        by_file.setdefault(file_of(test), []).append(test)
    return tuple(sorted(by_file.values(), key=len)[-1]) if by_file else ()


def _notices(wrong: str, candidate: Candidate, *, workshop: Trials, trials: dict[str, Trial]) -> bool:
    """The cheap question first: does any test fail with the fault that passes without?"""
    if wrong not in trials:
        trials[wrong] = _try(wrong, candidate, workshop=workshop, tests=candidate.tests)
    trial = trials[wrong]
    return not trial.has_timed_out and not trial.passed.issuperset(candidate.tests)


def _try(operator: str, candidate: Candidate, *, workshop: Trials, tests: Sequence[str]) -> Trial:
    site = candidate.site
    return workshop.trial(candidate.path, line=site.line, text=site.with_operator(operator), tests=tests)


def _is_steady(candidate: Candidate, *, wrong: str, listed: Sequence[str], workshop: Trials) -> bool:
    """Exactly the listed tests, once more, on both trees."""
    if not listed:
        return False
    with_fault = _try(wrong, candidate, workshop=workshop, tests=listed)
    without = _try(candidate.site.operator, candidate, workshop=workshop, tests=listed)
    is_told = not with_fault.has_timed_out and not with_fault.passed.issuperset(listed)
    return is_told and without.passed.issuperset(listed)


def _task(candidate: Candidate, *, wrong: str, listed: tuple[str, ...], chance: Chance, workshop: Trials) -> Task:
    site = candidate.site
    fault = Fault(
        line=site.line,
        kind=site.kind,
        right=site.operator,
        wrong=wrong,
        old=site.text,
        new=site.with_operator(wrong),
    )
    return Task(
        name=task_name(workshop.package.name, path=candidate.path, line=site.line),
        package=workshop.package,
        path=candidate.path,
        fault=fault,
        listed_tests=listed,
        limit_s=TASK_LIMIT_S,
        chance=chance,
    )


def task_name(package: str, *, path: str, line: int) -> str:
    """toolz, toolz/itertoolz.py, 123 -> toolz-itertoolz-0123; the folder of the package itself is left out."""
    parts = PurePosixPath(path).with_suffix("").parts
    stem = "-".join(parts[1:] if len(parts) > 1 else parts)
    plain = "".join(letter if letter.isalnum() else "-" for letter in f"{package}-{stem}".lower())
    return f"{'-'.join(word for word in plain.split('-') if word)}-{line:04d}"
