"""Run chosen tests of a tree and write down what was seen. Stands alone: it is copied into the test site.

    python -I -S -B <site>/pytest_runner.py REPORT TREE CONFCUT NODE_ID...

The report is JSON lines: {"started": true} once pytest is loaded from the site and before anything of the tree is;
{"id", "when", "outcome", "duration_s"} for each phase of each test; {"collect_error": id}; {"ended": status}.
The tree comes last on the module path, after the tests' folder, so nothing in it can stand in for the standard
library, pytest or a dependency. Configuration and plugins of the tree, and conftest.py outside the tests' folder, are
not read.
"""

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

QUIET = ["-q", "--tb=short", "--assert=plain", "--import-mode=importlib", "--strict-markers"]
WITHOUT = [
    *("cacheprovider", "junitxml", "doctest", "pastebin", "legacypath", "faulthandler", "stepwise", "setuponly"),
    *("unraisableexception", "threadexception"),  # they collect all garbage: a third of a short run
]


class Recorder:
    """A pytest plugin that writes each report as it comes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, **fields: object) -> None:
        self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()

    def pytest_runtest_logreport(self, report: Any) -> None:
        outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
        self.write(id=report.nodeid, when=report.when, outcome=outcome, duration_s=round(report.duration, 6))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.write(collect_error=report.nodeid)


def arguments(*, tree: str, confcut: str, ini: str) -> list[str]:
    without = [word for name in WITHOUT for word in ("-p", f"no:{name}")]
    return [*QUIET, *without, "-c", ini, f"--rootdir={tree}", f"--confcutdir={confcut}"]


def main(argv: list[str]) -> int:
    report, tree, confcut, *chosen = argv
    site = Path(__file__).resolve().parent
    sys.path[:] = [*(path for path in sys.path if Path(path) != site), str(site), confcut, tree]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(tree)
    with Path(report).open("w", encoding="utf-8") as stream:
        import pytest

        recorder = Recorder(stream)
        recorder.write(started=True)
        options = arguments(tree=tree, confcut=confcut, ini=str(site / "empty.ini"))
        status = int(pytest.main([*options, *chosen], plugins=[recorder]))
        recorder.write(ended=status)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
