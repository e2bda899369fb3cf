"""Run a package's tests once and write down which source lines each test reaches. Stands alone, beside pytest_runner.

    python -I -S -B <site>/trace_runner.py REPORT TREE CONFCUT LINES_FILE ARGUMENT...

Lines are those run in a test's call phase by frames of the tree's own modules; what import runs belongs to no test.
LINES_FILE is JSON lines: {"id", "reached": {path: [line, ...]}}.
"""

import json
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any


TEST_LIMIT_S = 2.0
"""A test that takes longer, traced, is given up: it fails, and a failing test is not used."""


class TooSlow(Exception):
    """Raised inside the test by the timer."""


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise TooSlow


class LineRecorder:
    """A pytest plugin that traces the call phase of each test."""

    def __init__(self, stream: IO[str], *, tree: str, tests: str) -> None:
        self._stream = stream
        self._tree = tree + "/"
        self._tests = tests + "/"
        self._reached: dict[str, set[int]] = defaultdict(set)

    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        self._reached.clear()
        signal.setitimer(signal.ITIMER_REAL, TEST_LIMIT_S)
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            reached = {path.removeprefix(self._tree): sorted(lines) for path, lines in self._reached.items()}
            self._stream.write(json.dumps({"id": item.nodeid, "reached": reached}) + "\n")

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(self._tree) or path.startswith(self._tests):
            return None
        lines = self._reached[path]

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return on_line

        return on_line


def main(argv: list[str]) -> int:
    report, tree, confcut, lines_file, *arguments = argv
    site = Path(__file__).resolve().parent
    sys.path.insert(0, str(site))
    import pytest
    import pytest_runner

    signal.signal(signal.SIGALRM, _give_up)
    LineRecorder.pytest_runtest_call = pytest.hookimpl(hookwrapper=True)(LineRecorder.pytest_runtest_call)  # type: ignore[method-assign]
    with Path(lines_file).open("w", encoding="utf-8") as stream:
        plugin = LineRecorder(stream, tree=tree, tests=confcut)
        return pytest_runner.run(report=report, tree=tree, confcut=confcut, node_ids=arguments, plugins=[plugin])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
