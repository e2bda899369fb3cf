"""From an unmodified package to admitted tasks: the rules on a made-up bench, then the whole on the tiny package."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rein_tasks.factory.admission import Candidate, Trial, admit, candidates, choose_listed, task_name
from rein_tasks.factory.coverage import Coverage, Reach, coverage_of, read_reaches
from rein_tasks.factory.journal import Journal
from rein_tasks.factory.making import make_tasks
from rein_tasks.factory.readmission import readmit
from rein_tasks.model import Package, Split, Task, TaskSet
from rein_tasks.operators import sites
from rein_tasks.task_set import Recipe

SOURCE = "def is_small(number, limit):\n    return number < limit\n"
PACKAGE = Package(
    name="tiny",
    version="1.0",
    licence="MIT",
    archive="tiny-1.0.tar.gz",
    sha256="0" * 64,
    split=Split.TRAIN,
    source={"tiny": "tiny"},
    tests={"tests": "tests"},
)


class Bench:
    """Knows for each operator which tests pass; an operator it does not know hangs."""

    package = PACKAGE

    def __init__(self, passed: dict[str, str]) -> None:
        self._passed = passed

    def trial(self, path: str, *, line: int, text: str, tests: Sequence[str]) -> Trial:
        assert (path, line) == ("tiny/core.py", 2)
        operator = text.split()[2]
        if operator not in self._passed:
            return Trial(passed=frozenset(), has_timed_out=True)
        return Trial(passed=frozenset(self._passed[operator]) & set(tests), has_timed_out=False)


def candidate(tests: str, bystanders: str = "") -> Candidate:
    (site,) = sites(SOURCE)
    return Candidate(path="tiny/core.py", site=site, tests=tuple(tests), bystanders=tuple(bystanders))


def trials(passed: dict[str, str]) -> dict[str, Trial]:
    return {name: Trial(passed=frozenset(tests), has_timed_out=False) for name, tests in passed.items()}


def test_a_fault_that_tests_tell_is_admitted_with_its_chance_level() -> None:
    bench = Bench({"<": "abz", "<=": "bz", ">": "z", ">=": "z", "==": "z", "!=": "abz"})
    task = admit(candidate("ab", "z"), workshop=bench, prefer=("<=",))
    assert task
    assert task.name == "tiny-core-0002"
    assert (task.fault.old, task.fault.new) == ("    return number < limit", "    return number <= limit")
    assert task.listed_tests == ("a", "b", "z")
    assert (task.chance.num_passing, task.chance.num_tried) == (2, 5)


def test_the_next_wrong_operator_is_taken_where_tests_do_not_tell_the_first() -> None:
    bench = Bench({"<": "a", "<=": "a", ">": "", ">=": "", "==": "", "!=": ""})
    task = admit(candidate("a"), workshop=bench, prefer=("<=", ">="))
    assert task
    assert task.fault.wrong == ">="


def test_a_fault_that_no_test_tells_is_turned_down() -> None:
    bench = Bench({"<": "a", "<=": "a", ">": "", ">=": "a", "==": "", "!=": ""})
    assert admit(candidate("a"), workshop=bench, prefer=("<=", ">=")) is None


def test_a_fault_that_many_guesses_repair_is_turned_down() -> None:
    bench = Bench({"<": "a", "<=": "a", ">": "a", ">=": "", "==": "a", "!=": "a"})
    assert admit(candidate("a"), workshop=bench, prefer=(">=",)) is None


def test_a_fault_with_a_replacement_that_hangs_is_turned_down() -> None:
    bench = Bench({"<": "a", "<=": "", ">": "", ">=": "", "==": ""})
    assert admit(candidate("a"), workshop=bench, prefer=("<=",)) is None


def test_listed_tests_tell_as_many_replacements_as_they_can() -> None:
    seen = trials({"<": "wxyz", "<=": "xyz", "==": "wxz", ">": "wxyz"})
    assert choose_listed(candidate("wxyz", "f"), wrong="<=", trials=seen) == ("w", "y", "x", "z")


def test_candidates_are_reached_lines_with_the_tests_of_one_file() -> None:
    coverage = Coverage(
        tests_at={("tiny/core.py", 2): ("t1::a", "t2::b", "t2::c"), ("tiny/core.py", 1): ("t1::a",)},
        tests_of={"t1": ("t1::a",), "t2": ("t2::b", "t2::d", "t2::c")},
    )
    (found,) = candidates(coverage, sites={"tiny/core.py": sites(SOURCE), "tiny/other.py": sites(SOURCE)})
    assert (found.tests, found.bystanders) == (("t2::b", "t2::c"), ("t2::d",))


def test_a_line_with_two_operators_of_a_kind_is_no_candidate() -> None:
    coverage = Coverage(tests_at={("m.py", 1): ("t::a",)}, tests_of={"t": ("t::a",)})
    assert candidates(coverage, sites={"m.py": sites("a = b + c - d\n")}) == []


def test_tests_that_reach_fewest_lines_come_first() -> None:
    wide = Reach(node_id="t::a", lines={"m.py": [1, 2]})
    narrow = Reach(node_id="t::b", lines={"m.py": [2]})
    assert coverage_of([wide, narrow]).tests_at == {("m.py", 1): ("t::a",), ("m.py", 2): ("t::b", "t::a")}


def test_half_a_line_of_a_trace_and_awkward_names_are_left_out() -> None:
    text = '{"id": "t::a", "reached": {"m.py": [1]}}\n{"id": "t::\u00e9", "reached": {"m.py": [1]}}\n{"id": "t::b", "re'
    assert [reach.node_id for reach in read_reaches(text)] == ["t::a"]


def test_names_are_made_of_package_module_and_line() -> None:
    assert task_name("toolz", path="toolz/itertoolz.py", line=123) == "toolz-itertoolz-0123"
    assert task_name("tabulate", path="tabulate/__init__.py", line=7) == "tabulate-init-0007"
    assert task_name("pygtrie", path="pygtrie.py", line=7) == "pygtrie-pygtrie-0007"


def test_a_set_made_from_a_package_is_readmitted(unpacked: Package, cache: Path, python: Path) -> None:
    recipe = Recipe(format=1, name="tiny", num_tasks={"train": 2}, packages=(unpacked,))
    made = make_tasks(recipe, cache=cache, python=python, report=lambda text: None)
    assert len(made.tasks) == 2
    assert {task.path for task in made.tasks} == {"tiny/core.py"}
    assert readmit(made, cache=cache, python=python, report=lambda text: None) == []


def test_a_task_that_no_longer_holds_is_reported(make_task: Callable[..., Task], cache: Path, python: Path) -> None:
    task = make_task(listed_tests=("tests/test_core.py::test_total",))
    task_set = TaskSet(name="tiny", packages=(task.package,), tasks=(task,))
    failures = readmit(task_set, cache=cache, python=python, report=lambda text: None)
    assert failures == ["tiny-core-0005: passes with its fault"]


def test_a_journal_asks_once_and_remembers_in_its_folder(tmp_path: Path) -> None:
    seen = Trial(passed=frozenset("ab"), has_timed_out=False)
    asked: list[str] = []

    def find_out() -> Trial:
        asked.append("trial")
        return seen

    for _ in range(2):
        journal = Journal(tmp_path / "factory", name="tiny")
        assert journal.trial(["m.py", 1, "a < b", 1], find_out=find_out) == seen
        assert journal.trial(["m.py", 1, "a < b", 1], find_out=find_out) == seen
    assert asked == ["trial"]


def test_a_journal_cut_off_in_a_line_goes_on(tmp_path: Path) -> None:
    seen = Trial(passed=frozenset(), has_timed_out=True)
    Journal(tmp_path, name="tiny").trial(["a"], find_out=lambda: seen)
    file = tmp_path / "tiny.trials.jsonl"
    file.write_text(file.read_text() + '{"key": "b')
    journal = Journal(tmp_path, name="tiny")
    other = Trial(passed=frozenset("x"), has_timed_out=False)
    assert journal.trial(["a"], find_out=lambda: other) == seen
    assert journal.trial(["b"], find_out=lambda: other) == other
    assert Journal(tmp_path, name="tiny").trial(["b"], find_out=lambda: seen) == other
