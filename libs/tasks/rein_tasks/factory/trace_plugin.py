"""A pytest plugin that writes down which source lines each test reaches. Stands alone, copied beside pytest_runner.

Lines are those run in a test's call phase by frames of the tree's own modules; what import runs belongs to no test.
The file named by --lines-file is JSON lines: {"id", "reached": {path: [line, ...]}}. A test that takes more than
`TEST_LIMIT_S`, traced, is made to fail, and a failing test is not used. The limit is in CPU time, so that a busy
machine chooses the same tests.
"""

import json
import signal
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

TEST_LIMIT_S = 1.0


class TooSlow(Exception):
    """Raised inside the test by the timer."""


class LineRecorder:
    """Traces the call phase of each test."""

    def __init__(self, file: Path, *, tree: str, tests: str) -> None:
        self._file = file
        self._tree = tree + "/"
        self._tests = tests + "/"
        self._reached: dict[str, set[int]] = defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        self._reached.clear()
        signal.setitimer(signal.ITIMER_PROF, TEST_LIMIT_S)
        sys.settrace(self._on_call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            reached = {path.removeprefix(self._tree): sorted(lines) for path, lines in self._reached.items()}
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"id": item.nodeid, "reached": reached}) + "\n")

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(self._tree) or path.startswith(self._tests):
            return None
        lines = self._reached[path]

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return on_line

        return on_line


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines-file", required=True)


def pytest_configure(config: pytest.Config) -> None:
    file = Path(config.getoption("lines_file"))
    file.write_text("")
    tests = str(config.getoption("confcutdir"))
    config.pluginmanager.register(LineRecorder(file, tree=str(config.rootpath), tests=tests))
    signal.signal(signal.SIGPROF, _give_up)


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise TooSlow
