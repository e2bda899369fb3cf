"""What commands print: lines for people, or JSON for programs with --json. Results go to standard output."""

import json
import sys
from collections.abc import Mapping, Sequence

from rein_bus.errors import ReinError


class Output:
    """One command's voice."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json

    @property
    def is_live(self) -> bool:
        """Whether a person is watching a terminal."""
        return not self.is_json and sys.stdout.isatty()

    def say(self, text: str) -> None:
        """Progress, for people only."""
        if not self.is_json:
            print(text, flush=True)

    def result(self, value: Mapping[str, object], *, text: str) -> None:
        """What the command found: `value` with --json, else `text`."""
        print(json.dumps(value, default=str) if self.is_json else text, flush=True)

    def row(self, value: Mapping[str, object]) -> None:
        """One JSON line of a stream, whatever the mode."""
        print(json.dumps(value, default=str), flush=True)

    def fail(self, error: ReinError) -> None:
        """Why the command cannot be done, in one line."""
        detail = " ".join(error.detail.split())
        if self.is_json:
            print(json.dumps({"error": {"code": error.code, "detail": detail}}), flush=True)
        else:
            print(f"rein: {detail}", file=sys.stderr, flush=True)


def table(rows: Sequence[Sequence[object]], *, header: Sequence[str]) -> str:
    """Left-aligned columns, no frame."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
