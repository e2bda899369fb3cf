"""A package set up for trial runs: its pristine tree with tests laid over, and the means to run tests in it.

One tree is reused for all trials of a package: a trial swaps one line and puts the module back. Only trusted code
runs here (the package as published, with one operator changed).
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rein_tasks.cache import package_folder
from rein_tasks.factory import trace_plugin
from rein_tasks.factory.admission import Trial
from rein_tasks.factory.coverage import Coverage, coverage_of, read_reaches
from rein_tasks.model import Package
from rein_tasks.subprocess_runner import run_in_subprocess
from rein_tasks.trees import lay_tests
from rein_tasks.verification import Outcome, Places, VerifyRun, command_for, judge

TRACE_LIMIT_S = 600.0
TRIAL_LIMIT_S = 60.0
TRIAL_CPU_LIMIT_S = 3


class Workshop:
    """One package's tree, for one process."""

    def __init__(self, package: Package, *, cache: Path, folder: Path, python: Path) -> None:
        self.package = package
        self.tree = folder / "tree"
        self._cache = cache
        self._lines_file = folder / "lines.jsonl"
        self._places = Places(python=python, site=cache / "site", tree=self.tree, report=folder / "report.jsonl")

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

    def trial(self, path: str, *, line: int, text: str, tests: Sequence[str]) -> Trial:
        """Run tests with one line replaced, and put the line back."""
        file = self.tree / path
        pristine = file.read_bytes()
        lines = pristine.split(b"\n")
        lines[line - 1] = text.encode()
        file.write_bytes(b"\n".join(lines))
        try:
            run = self._run(tests, limit_s=TRIAL_LIMIT_S, cpu_limit_s=TRIAL_CPU_LIMIT_S)
        finally:
            file.write_bytes(pristine)
        verdict = judge(tests, run=run)
        passed = [result.node_id for result in verdict.results if result.outcome is Outcome.PASSED]
        return Trial(passed=frozenset(passed if verdict.is_whole else ()), has_timed_out=run.has_timed_out)

    def coverage(self) -> Coverage:
        """One traced run of the whole suite; tests that did not pass in it are not used."""
        shutil.copyfile(trace_plugin.__file__, Path(self._places.site) / "trace_plugin.py")
        options = ["-p", "trace_plugin", f"--lines-file={self._lines_file}", "--continue-on-collection-errors"]
        run = self._run([*options, self.package.tests_folder], limit_s=TRACE_LIMIT_S, cpu_limit_s=None)
        reaches = read_reaches(self._lines_file.read_text(encoding="utf-8"))
        results = judge([reach.node_id for reach in reaches], run=run).results
        pairs = zip(reaches, results, strict=True)
        return coverage_of([reach for reach, result in pairs if result.outcome is Outcome.PASSED])

    def _run(self, arguments: Sequence[str], *, limit_s: float, cpu_limit_s: int | None) -> VerifyRun:
        confcut = self.tree / self.package.tests_folder
        command = command_for(arguments, places=self._places, confcut=confcut, limit_s=limit_s)
        return run_in_subprocess(command, cpu_limit_s=cpu_limit_s)
