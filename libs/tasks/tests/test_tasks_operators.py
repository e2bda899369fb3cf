"""Where operators are found, and that sed gives back the original line."""

import subprocess
from pathlib import Path

import pytest

from rein_tasks.operators import OPERATORS, WRONG_FOR, Kind, Site, is_sed_restorable, sites

SOURCE = """def f(a, b, c):
    if a == b and c != a:
        return (a + b) * (c // 2) - a % b
    if a not in b or c in b:
        return a <= b
    while len(a) >= 3 > c:
        a = a[1:]
    for a in b:
        yield c
    return a < b, a-b, a  + b, f"{a + b}", "%s" % a, (
        a
        + b
    )
"""


def found(source: str) -> list[tuple[int, str]]:
    return [(site.line, site.operator) for site in sites(source)]


def test_operators_are_found_on_their_lines_in_order() -> None:
    assert found(SOURCE) == [
        (2, "=="),
        (2, "and"),
        (2, "!="),
        (3, "+"),
        (3, "*"),
        (3, "//"),
        (3, "-"),
        (3, "%"),
        (4, "not in"),
        (4, "or"),
        (4, "in"),
        (5, "<="),
        (10, "<"),
    ]


def test_a_line_outside_ascii_is_passed_over() -> None:
    assert found("x = 'é' + y\nz = x + y\n") == [(2, "+")]


def test_replacing_an_operator_changes_nothing_else() -> None:
    for site in sites(SOURCE):
        for operator in OPERATORS[site.kind]:
            line = site.with_operator(operator)
            assert line.startswith(site.text[: site.column] + operator + " ")
            assert line.endswith(site.text[site.column + len(site.operator) :])


def test_every_operator_has_a_wrong_one_of_its_own_kind() -> None:
    for operators in OPERATORS.values():
        for operator in operators:
            assert WRONG_FOR[operator]
            assert set(WRONG_FOR[operator]) <= set(operators) - {operator}


@pytest.mark.parametrize("source", [SOURCE, "a = b - c + d\n", "if a < b and c <= d: pass\n"])
def test_sed_restores_exactly_what_is_called_restorable(source: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    for site in sites(source):
        for wrong in WRONG_FOR[site.operator]:
            if "*" not in wrong:
                assert restored_by_sed(site, wrong=wrong, source=source, file=file) == is_sed_restorable(site, wrong)


def restored_by_sed(site: Site, *, wrong: str, source: str, file: Path) -> bool:
    lines = source.split("\n")
    lines[site.line - 1] = site.with_operator(wrong)
    file.write_text("\n".join(lines))
    subprocess.run(["sed", "-i", f"{site.line}s| {wrong} | {site.operator} |", str(file)], check=True)
    return file.read_text() == source


def test_a_wrong_operator_that_stands_earlier_on_the_line_is_not_restorable() -> None:
    plus, minus = sites("a = b - c + d\n")
    assert (plus.operator, minus.operator) == ("-", "+")
    assert is_sed_restorable(plus, "+")
    assert not is_sed_restorable(minus, "-")


def test_an_asterisk_is_never_the_wrong_operator() -> None:
    (site,) = sites("a = b // c\n")
    assert not is_sed_restorable(site, "*")
    assert site.kind is Kind.ARITHMETIC
