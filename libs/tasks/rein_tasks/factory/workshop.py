"""A package set up for trial runs: its pristine tree with tests laid over, and the means to run tests in it.

One tree is reused for all trials of a package: a trial swaps one line and puts the module back. Only trusted code
runs here (the package as published, with one operator changed).
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rein_tasks.cache import package_folder
from rein_tasks.factory import trace_runner
from rein_tasks.model import Package
from rein_tasks.subprocess_runner import run_in_subprocess
from rein_tasks.trees import lay_tests
from rein_tasks.verification import RUNNER_FILE, Outcome, Places, VerifyRun, command_for, judge

TRACE_LIMIT_S = 90.0
SLOW_TEST_S = 0.3


@dataclass(frozen=True, slots=True)
class Trial:
    """What the tests did on one version of the tree."""

    passed: frozenset[str]
    has_timed_out: bool
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """Tests by the (path, line) they reach: passing and quick ones only, quickest first."""

    tests_at: dict[tuple[str, int], tuple[str, ...]]
    num_tests: int


class Workshop:
    """One package's tree, for one process."""

    def __init__(self, package: Package, *, cache: Path, folder: Path, python: Path) -> None:
        self.package = package
        self._cache = cache
        self._folder = folder
        self._lines_file = folder / "lines.jsonl"
        self._places = Places(python=python, site=cache / "site", tree=folder / "tree", report=folder / "report.jsonl")
        self.tree = folder / "tree"

    def set_up(self) -> None:
        shutil.copytree(package_folder(self.package, cache=self._cache) / "source", self.tree)
        lay_tests(self.package, dest=self.tree, cache=self._cache)

    def modules(self) -> Iterator[tuple[str, str]]:
        """(path, source) of each module faults may go into."""
        tests = self.tree / self.package.tests_folder
        for file in sorted(self.tree.rglob("*.py")):
            path = str(file.relative_to(self.tree))
            if tests not in file.parents and path not in self.package.leave:
                yield path, file.read_bytes().decode()

    @contextmanager
    def changed(self, path: str, *, line: int, text: str) -> Iterator[None]:
        """The tree with one line replaced, for the length of a `with`."""
        file = self.tree / path
        pristine = file.read_bytes()
        lines = pristine.split(b"\n")
        lines[line - 1] = text.encode()
        file.write_bytes(b"\n".join(lines))
        try:
            yield
        finally:
            file.write_bytes(pristine)

    def try_tests(self, node_ids: Sequence[str], *, limit_s: float) -> Trial:
        confcut = self.tree / self.package.tests_folder
        run = run_in_subprocess(command_for(node_ids, places=self._places, confcut=confcut, limit_s=limit_s))
        results = judge(node_ids, run=run).results
        passed = frozenset(result.node_id for result in results if result.outcome is Outcome.PASSED)
        is_whole = not run.has_timed_out and b'"ended"' in (run.report or b"")
        return Trial(passed=passed if is_whole else frozenset(), has_timed_out=run.has_timed_out, cpu_s=run.cpu_s)

    def coverage(self) -> Coverage:
        """One traced run of the whole suite."""
        script = Path(self._places.site) / "trace_runner.py"
        shutil.copyfile(trace_runner.__file__, script)
        confcut = self.tree / self.package.tests_folder
        command = command_for(
            [str(self._lines_file), "--continue-on-collection-errors", self.package.tests_folder],
            places=self._places,
            confcut=confcut,
            limit_s=TRACE_LIMIT_S,
        )
        argv = tuple(word.replace(RUNNER_FILE, script.name) for word in command.argv)
        run = run_in_subprocess(replace(command, argv=argv))
        return self._coverage(run)

    def _coverage(self, run: VerifyRun) -> Coverage:
        reached = {}
        for text in self._lines_file.read_text(encoding="utf-8").splitlines():
            if text.endswith("}}"):  # a run cut off at its limit leaves half a line
                entry = json.loads(text)
                reached[entry["id"]] = entry["reached"]
        usable = [name for name in reached if name.isascii() and name.isprintable() and len(name) <= 160]
        results = {r.node_id: r for r in judge(usable, run=run).results if r.outcome is Outcome.PASSED}
        quick = sorted(
            (r for r in results.values() if r.duration_s <= SLOW_TEST_S), key=lambda r: (r.duration_s, r.node_id)
        )
        tests_at: dict[tuple[str, int], list[str]] = defaultdict(list)
        for result in quick:
            for path, lines in reached[result.node_id].items():
                for line in lines:
                    tests_at[path, line].append(result.node_id)
        return Coverage(tests_at={place: tuple(tests) for place, tests in tests_at.items()}, num_tests=len(quick))
