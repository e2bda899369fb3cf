"""A package set up for trial runs: its pristine tree with tests laid over, and the means to run tests in it.

One tree is reused for all trials of a package: a trial swaps one line and puts the module back. Only trusted code
runs here (the package as published, with one operator changed).
"""

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from rein_tasks.cache import package_folder
from rein_tasks.errors import VerifierBroken
from rein_tasks.factory import trace_plugin, trial_server
from rein_tasks.factory.admission import Trial
from rein_tasks.factory.coverage import Coverage, Reach, coverage_of, read_reaches
from rein_tasks.factory.journal import Journal
from rein_tasks.model import Package
from rein_tasks.subprocess_runner import run_in_subprocess
from rein_tasks.trees import lay_tests
from rein_tasks.verification import Outcome, Places, VerifyRun, command_for, judge

TRACE_LIMIT_S = 600.0
TRIAL_LIMIT_S = 60
TRIAL_CPU_LIMIT_S = 3
PRISTINE_S = 1
"""Modification time of unchanged files: their byte code is valid, and that of a line just replaced is not."""
SPENT = {-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL}


class Workshop:
    """One package's tree, for one process."""

    def __init__(self, package: Package, *, cache: Path, folder: Path, python: Path) -> None:
        self.package = package
        self.tree = folder / "tree"
        self._cache = cache
        self._lines_file = folder / "lines.jsonl"
        self._journal = Journal(cache / "factory", name=package.folder_name)
        self._num_asked: Counter[tuple[object, ...]] = Counter()
        self._server: subprocess.Popen[str] | None = None
        self._places = Places(python=python, site=cache / "site", tree=self.tree, report=folder / "report.jsonl")

    def __enter__(self) -> Self:
        """Lay out the tree and start the server of trials."""
        shutil.copytree(package_folder(self.package, cache=self._cache) / "source", self.tree)
        lay_tests(self.package, dest=self.tree, cache=self._cache)
        for file in self.tree.rglob("*.py"):
            os.utime(file, (PRISTINE_S, PRISTINE_S))
        python = str(self._places.python)
        subprocess.run([python, "-I", "-m", "compileall", "-qq", str(self.tree)], check=False)
        self._server = subprocess.Popen(
            [python, "-I", "-S", "-B", str(self._install(trial_server.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"LANG": "C.UTF-8"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._server.kill()
            self._server.communicate()

    def modules(self) -> Iterator[tuple[str, str]]:
        """(path, source) of each module faults may go into."""
        tests = self.tree / self.package.tests_folder
        for file in sorted(self.tree.rglob("*.py")):
            path = str(file.relative_to(self.tree))
            if tests not in file.parents and path not in self.package.leave:
                yield path, file.read_bytes().decode()

    def trial(self, path: str, *, line: int, text: str, tests: Sequence[str]) -> Trial:
        """Run tests with one line replaced, and put the line back. The second of two equal trials is run again."""
        question = (path, line, text, *tests)
        self._num_asked[question] += 1
        return self._journal.trial(
            [*question, self._num_asked[question]],
            find_out=lambda: self._try(path, line=line, text=text, tests=tests),
        )

    def coverage(self) -> Coverage:
        """One traced run of the whole suite; tests that did not pass in it are not used."""
        return coverage_of(self._journal.reaches(find_out=self._trace))

    def _try(self, path: str, *, line: int, text: str, tests: Sequence[str]) -> Trial:
        file = self.tree / path
        pristine = file.read_bytes()
        lines = pristine.split(b"\n")
        lines[line - 1] = text.encode()
        file.write_bytes(b"\n".join(lines))
        try:
            run = self._serve(tests)
        finally:
            file.write_bytes(pristine)
            os.utime(file, (PRISTINE_S, PRISTINE_S))
        verdict = judge(tests, run=run)
        passed = [result.node_id for result in verdict.results if result.outcome is Outcome.PASSED]
        return Trial(passed=frozenset(passed if verdict.is_whole else ()), has_timed_out=run.has_timed_out)

    def _trace(self) -> list[Reach]:
        self._install(trace_plugin.__file__)
        tests = self.package.tests_folder
        arguments = ["-p", "trace_plugin", f"--lines-file={self._lines_file}", "--continue-on-collection-errors", tests]
        confcut = self.tree / tests
        run = run_in_subprocess(command_for(arguments, places=self._places, confcut=confcut, limit_s=TRACE_LIMIT_S))
        reaches = read_reaches(self._lines_file.read_text(encoding="utf-8"))
        results = judge([reach.node_id for reach in reaches], run=run).results
        pairs = zip(reaches, results, strict=True)
        return [reach for reach, result in pairs if result.outcome is Outcome.PASSED]

    def _serve(self, tests: Sequence[str]) -> VerifyRun:
        if not self._server or not self._server.stdin or not self._server.stdout:
            raise VerifierBroken("the workshop is closed")
        report = Path(self._places.report)
        report.unlink(missing_ok=True)
        arguments = [str(report), str(self.tree), str(self.tree / self.package.tests_folder), *tests]
        request = {"arguments": arguments, "cpu_limit_s": TRIAL_CPU_LIMIT_S, "limit_s": TRIAL_LIMIT_S}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise VerifierBroken(f"the server of trials for {self.package.name} has ended")
        return VerifyRun(
            report=report.read_bytes() if report.is_file() else None,
            has_timed_out=json.loads(answer)["status"] in SPENT,
            output="",
            cpu_s=0.0,
        )

    def _install(self, script: str) -> Path:
        """A stand-alone script beside the test runner."""
        target = Path(self._places.site) / Path(script).name
        shutil.copyfile(script, target)
        return target
