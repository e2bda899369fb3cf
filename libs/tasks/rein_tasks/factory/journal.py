"""What the factory has already found out about a package, kept in the cache, so that a making cut short goes on.

One file a package: JSON lines {"key", "passed", "has_timed_out"} for trials, one more file for its traced tests.
Deleting the folder makes the factory find everything out again.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rein_tasks.factory.admission import Trial
from rein_tasks.factory.coverage import Reach, read_reaches, write_reaches


class Journal:
    """Of one package."""

    def __init__(self, folder: Path, *, name: str) -> None:
        self._trials_file = folder / f"{name}.trials.jsonl"
        self._reaches_file = folder / f"{name}.lines.jsonl"
        self._trials: dict[str, Trial] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._trials_file.is_file():
            text = self._trials_file.read_text(encoding="utf-8")
            whole, _, _cut_off = text.rpartition("\n")
            self._trials = dict(_entry(line) for line in whole.splitlines())
            self._trials_file.write_text(whole + "\n" if whole else "", encoding="utf-8")

    def trial(self, question: Sequence[object], *, find_out: Callable[[], Trial]) -> Trial:
        """The answer on record, or a new one put on record."""
        key = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:24]
        if key not in self._trials:
            trial = self._trials[key] = find_out()
            fields = {"key": key, "passed": sorted(trial.passed), "has_timed_out": trial.has_timed_out}
            with self._trials_file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(fields) + "\n")
        return self._trials[key]

    def reaches(self, *, find_out: Callable[[], list[Reach]]) -> list[Reach]:
        """The same for the traced tests."""
        if not self._reaches_file.is_file():
            partial = self._reaches_file.with_suffix(".partial")
            partial.write_text(write_reaches(find_out()), encoding="utf-8")
            partial.replace(self._reaches_file)
        return read_reaches(self._reaches_file.read_text(encoding="utf-8"))


def _entry(line: str) -> tuple[str, Trial]:
    fields = json.loads(line)
    return fields["key"], Trial(passed=frozenset(fields["passed"]), has_timed_out=fields["has_timed_out"])
