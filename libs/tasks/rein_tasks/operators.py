"""Operators in source lines: where they stand, what they may be swapped for, and whether sed can swap them back.

Positions come from the syntax tree, never from text search. A site is only offered when its operator stands on one
line with exactly one space on each side, so that swapping it changes nothing else.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class Kind(StrEnum):
    """Operators that can stand in for each other without a syntax error."""

    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    BOOLEAN = "boolean"
    MEMBERSHIP = "membership"


OPERATORS: dict[Kind, tuple[str, ...]] = {
    Kind.COMPARISON: ("==", "!=", "<", "<=", ">", ">="),
    Kind.ARITHMETIC: ("+", "-", "*", "//", "%"),
    Kind.BOOLEAN: ("and", "or"),
    Kind.MEMBERSHIP: ("in", "not in"),
}

WRONG_FOR: dict[str, tuple[str, ...]] = {
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "+": ("-",),
    "-": ("+",),
    "*": ("//", "+"),
    "//": ("*", "-"),
    "%": ("//", "*"),
    "and": ("or",),
    "or": ("and",),
    "in": ("not in",),
    "not in": ("in",),
}
"""Plausible slips: the operators that may take the place of the right one."""

_SPELLING: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.And: "and",
    ast.Or: "or",
    ast.In: "in",
    ast.NotIn: "not in",
}
_KIND_OF = {operator: kind for kind, operators in OPERATORS.items() for operator in operators}


@dataclass(frozen=True, slots=True)
class Site:
    """An operator at `column` (0-based) of `line` (1-based), whose text is `text`."""

    line: int
    column: int
    operator: str
    kind: Kind
    text: str

    def with_operator(self, operator: str) -> str:
        """The line with another operator in this place."""
        return self.text[: self.column] + operator + self.text[self.column + len(self.operator) :]


def sites(source: str) -> list[Site]:
    """All sites of a module, in order. Lines with characters outside ASCII are passed over."""
    lines = source.split("\n")
    found = (_site(lines, left, operator, right) for left, operator, right in _applications(ast.parse(source)))
    return sorted((site for site in found if site), key=lambda site: (site.line, site.column))


def is_sed_restorable(site: Site, wrong: str) -> bool:
    """Whether `s| WRONG | RIGHT |` on the faulty line gives back exactly the original one."""
    if "*" in wrong:  # a repetition sign in sed's patterns
        return False
    return site.with_operator(wrong).replace(f" {wrong} ", f" {site.operator} ", 1) == site.text


def _applications(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.AST, ast.expr]]:
    """(left operand, operator, right operand), except inside f-strings, whose positions older parsers get wrong."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        match node:
            case ast.JoinedStr():
                continue
            case ast.BinOp(left=ast.Constant(value=str() | bytes()), op=ast.Mod()):
                pass  # string formatting: no arithmetic
            case ast.BinOp(left=left, op=operator, right=right):
                yield left, operator, right
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield left, operator, right
            case ast.BoolOp(op=boolean, values=values):
                yield from ((first, boolean, second) for first, second in pairwise(values))
        pending.extend(ast.iter_child_nodes(node))


def _site(lines: list[str], left: ast.expr, operator: ast.AST, right: ast.expr) -> Site | None:
    spelling = _SPELLING.get(type(operator))
    if spelling is None or left.end_lineno is None or left.end_col_offset is None or left.end_lineno != right.lineno:
        return None
    text = lines[right.lineno - 1]
    if not text.isascii():
        return None
    between = text[left.end_col_offset : right.col_offset]
    found = re.fullmatch(rf"\)* ({re.escape(spelling)}) \(*", between)
    if found is None:
        return None
    column = left.end_col_offset + found.start(1)
    return Site(line=right.lineno, column=column, operator=spelling, kind=_KIND_OF[spelling], text=text)
