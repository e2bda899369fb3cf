"""Which of a package's tests reach which line."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

MAX_ID_LENGTH = 160


@dataclass(frozen=True, slots=True)
class Reach:
    """One test and the lines it reached, by path."""

    node_id: str
    lines: dict[str, list[int]]

    @property
    def num_lines(self) -> int:
        return sum(len(lines) for lines in self.lines.values())


@dataclass(frozen=True, slots=True)
class Coverage:
    """Tests fit to be listed, those that reach fewest lines first."""

    tests_at: dict[tuple[str, int], tuple[str, ...]]
    """By (path, line)."""
    tests_of: dict[str, tuple[str, ...]]
    """By test file."""


def read_reaches(text: str) -> list[Reach]:
    """Contents of a trace's --lines-file; ids that are awkward on a command line are left out."""
    reaches = []
    for line in text.splitlines():
        if line.endswith("}}"):  # a run cut off at its limit leaves half a line
            entry = json.loads(line)
            reaches.append(Reach(node_id=entry["id"], lines=entry["reached"]))
    return [reach for reach in reaches if _is_plain(reach.node_id)]


def write_reaches(reaches: Sequence[Reach]) -> str:
    return "".join(json.dumps({"id": reach.node_id, "reached": reach.lines}) + "\n" for reach in reaches)


def coverage_of(reaches: Sequence[Reach]) -> Coverage:
    tests_at: dict[tuple[str, int], list[str]] = defaultdict(list)
    tests_of: dict[str, list[str]] = defaultdict(list)
    for reach in sorted(reaches, key=lambda reach: (reach.num_lines, reach.node_id)):
        tests_of[file_of(reach.node_id)].append(reach.node_id)
        for path, lines in reach.lines.items():
            for line in lines:
                tests_at[path, line].append(reach.node_id)
    return Coverage(
        tests_at={place: tuple(tests) for place, tests in tests_at.items()},
        tests_of={file: tuple(tests) for file, tests in tests_of.items()},
    )


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def _is_plain(node_id: str) -> bool:
    return node_id.isascii() and node_id.isprintable() and len(node_id) <= MAX_ID_LENGTH
