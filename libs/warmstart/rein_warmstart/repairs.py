"""Random repairs: a place, a line of real code, an operator on it and a replacement drawn by chance.

The replacement is uniform among the other operators of the same kind, so that what is learnt here is the form of a
repair and nothing of which one is right. Places are mostly made up, because a small model otherwise learns to recall
paths instead of copying them.
"""

import random
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KINDS: tuple[tuple[str, ...], ...] = (
    ("==", "!=", "<", "<=", ">", ">="),
    ("+", "-", "*", "//", "%"),
    ("and", "or"),
)
#: A star after a blank means repetition to sed, so it is never the operator to be replaced.
NOT_REPLACED = frozenset({"*"})
#: Share of names put together from the tokenizer's pieces. At 0.2 a piece came a few times in a whole warm start and
#: was not copied (`networkx` became `nxx`; 25 % of edits right in intervaltree, 100 % in texttable).
PIECES_SHARE = 0.6
_KIND_OF = {operator: kind for kind in KINDS for operator in kind}
_SPACED = re.compile(r"(?<= )(==|!=|<=|>=|<|>|\+|-|//|%|and|or)(?= )")
_SYLLABLES = (
    *("ba", "co", "di", "fu", "ge", "hi", "jo", "ku", "la", "me", "no", "pa", "qui", "ra", "se", "to"),
    *("ul", "va", "we", "xi", "yo", "ze", "tr", "st", "pl", "sh", "er", "on", "an", "it"),
)


@dataclass(frozen=True, slots=True)
class Repair:
    """One trace's content."""

    path: str
    line: int
    source: str
    """The source line, without its newline."""
    wrong: str
    new: str

    @property
    def look(self) -> str:
        return f"sed -n {self.line}p {self.path}"

    @property
    def edit(self) -> str:
        return f"sed -i '{self.line}s| {self.wrong} | {self.new} |' {self.path}"


def alternatives(operator: str) -> list[str]:
    """What an operator may be replaced with."""
    return [other for other in _KIND_OF[operator] if other != operator]


def operators_on(source: str) -> list[str]:
    """Replaceable operators written with a blank on either side, in order."""
    return [operator for operator in _SPACED.findall(source) if operator not in NOT_REPLACED]


def source_lines(folders: Sequence[Path], *, max_chars: int = 88) -> list[str]:
    """Lines of Python under `folders` that a repair could be about; sorted, without repetition."""
    found: set[str] = set()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            for line in file.read_text(encoding="utf-8", errors="ignore").splitlines():
                is_plain = len(line) <= max_chars and line.isascii() and "\t" not in line
                if is_plain and not line.lstrip().startswith("#") and operators_on(line):
                    found.add(line)
    return sorted(found)


def package_paths(folder: Path) -> list[str]:
    """Names of Python files as a task would name them: relative to `<package>/source`, tests left out."""
    files = (file for package in sorted(folder.iterdir()) for file in sorted(package.rglob("*.py")))
    names = {"/".join(file.relative_to(folder).parts[2:]).removeprefix("src/") for file in files}
    return sorted(name for name in names if "test" not in name and name.count("/") <= 2)


class RepairSource:
    """Draws repairs; the same seed draws the same ones."""

    def __init__(
        self,
        lines: Sequence[str],
        *,
        paths: Sequence[str],
        seed: int,
        real_share: float = 0.2,
        word_pieces: Sequence[str] = (),
    ) -> None:
        """`word_pieces`: the tokenizer's own, so that every one of them is copied often enough to be learnt."""
        self._lines = lines
        self._paths = paths
        self._word_pieces = word_pieces
        self._random = random.Random(seed)
        self._real_share = real_share

    def draw(self) -> Repair:
        source = self._random.choice(self._lines)
        wrong = self._random.choice(operators_on(source))
        new = self._random.choice(alternatives(wrong))
        line = int(2 ** self._random.uniform(0, 11)) if self._random.random() < 0.5 else self._random.randint(1, 2000)
        return Repair(path=self.path(), line=line, source=source, wrong=wrong, new=new)

    def path(self) -> str:
        if self._random.random() < self._real_share:
            return self._random.choice(self._paths)
        folders = [self._name() for _ in range(self._random.choice((0, 1, 1, 1, 2, 2, 3)))]
        return "/".join([*folders, self._name() + ".py"])

    def _name(self) -> str:
        if self._word_pieces and self._random.random() < PIECES_SHARE:
            pieces = self._random.choices(self._word_pieces, k=self._random.randint(1, 3))
            return self._random.choice(("", "", "_")).join(pieces)
        style = self._random.random()
        if style < 0.3:
            return "".join(self._random.choices(string.ascii_lowercase + "_", k=self._random.randint(2, 10)))
        if style < 0.6:
            return "".join(self._random.choices(_SYLLABLES, k=self._random.randint(1, 5)))
        stems = [Path(part).stem for part in self._random.choice(self._paths).split("/")]
        name = self._random.choice(stems)
        if style < 0.8:
            name += self._random.choice(("_", "", "s", "lib", "2")) + self._random.choice(_SYLLABLES)
        return name
