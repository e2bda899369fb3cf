"""The on-disk format: round trip, digests, and one clear error for each way a set can be broken."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import Package, Split, Task, TaskSet
from rein_tasks.operators import Kind, Site, is_sed_restorable
from rein_tasks.task_set import load_recipe, load_task_set, save_tasks

DEMO = Path(__file__).parents[3] / "deploy" / "demo" / "tasks"
MakeTask = Callable[..., Task]


@pytest.fixture
def folder(make_task: MakeTask, tmp_path: Path) -> Path:
    """A set of one task, written out."""
    task = make_task()
    home = tmp_path / "set"
    home.mkdir()
    (home / "task_set.toml").write_text(recipe_text(task.package))
    save_tasks(home, task_set=TaskSet(name="tiny-set", packages=(task.package,), tasks=(task,)))
    return home


def recipe_text(package: Package) -> str:
    return f"""format = 1
name = "tiny-set"

[[packages]]
name = "tiny"
version = "1.0"
licence = "MIT"
archive = "tiny-1.0.tar.gz"
sha256 = "{package.sha256}"
split = "train"
source = {{ "src/tiny" = "tiny", "LICENSE" = "LICENSE" }}
tests = {{ tests = "tests" }}
"""


def test_a_written_set_reads_back_the_same(folder: Path, make_task: MakeTask) -> None:
    task_set = load_task_set(folder)
    assert task_set.tasks == (make_task(),)
    assert task_set.by_name["tiny-core-0005"].digest == make_task().digest
    assert task_set.of_split("heldout") == ()


def test_the_instruction_follows_the_template(make_task: MakeTask) -> None:
    assert make_task().instruction == "Line 5 of tiny/core.py has one wrong operator. Repair it."


def test_the_digest_changes_with_the_tests_and_with_the_package(make_task: MakeTask) -> None:
    task = make_task()
    other_tests = make_task(listed_tests=("tests/test_core.py::test_total",))
    other_package = make_task(package=task.package.model_copy(update={"sha256": "0" * 64}))
    assert len({task.digest, other_tests.digest, other_package.digest}) == 3


def test_the_summary_states_the_chance_level(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["train"]["chance_pass_rate"] == 0.2
    assert summary["train"]["right_operators"] == {"<": 1}
    assert summary["heldout"]["num_tasks"] == 0


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"package": "tiny"', '"package": "tin"', ["tiny-core-0005", "tasks.jsonl line 1", "package", "name one of"]),
        ('"limit_s": 20.0', '"limit_s": -1', ["tiny-core-0005", "tasks.jsonl line 1", "limit_s"]),
        ('"limit_s"', '"limits"', ["tiny-core-0005", "tasks.jsonl line 1"]),
        ('"tiny/core.py"', '"../core.py"', ["tiny-core-0005", "path", "relative path"]),
        ('"fault": {"line": 5', '"fault": {"line": 0', ["tiny-core-0005", "fault.line"]),
        ('{"name"', '"name"', ["tasks.jsonl line 1", "one JSON object a line"]),
    ],
)
def test_a_broken_task_is_named_with_file_field_and_remedy(folder: Path, old: str, new: str, named: list[str]) -> None:
    file = folder / "tasks.jsonl"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(TaskSetBroken) as caught:
        load_task_set(folder)
    for word in named:
        assert word in str(caught.value)


def test_a_name_given_twice_is_refused(folder: Path) -> None:
    file = folder / "tasks.jsonl"
    file.write_text(file.read_text() * 2)
    with pytest.raises(TaskSetBroken, match=r"tasks\.jsonl line 2: name: occurs twice"):
        load_task_set(folder)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("format = 1", "format = 2", "format: is 2"),
        ("format = 1", "format =", "(syntax)"),
        ("name = ", "nome = ", "task_set.toml: name: Field required"),
    ],
)
def test_a_broken_recipe_is_named(folder: Path, old: str, new: str, named: str) -> None:
    file = folder / "task_set.toml"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(TaskSetBroken) as caught:
        load_task_set(folder)
    assert named in str(caught.value)
    assert "task_set.toml" in str(caught.value)


def test_a_folder_that_is_no_task_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskSetBroken, match=r"task_set\.toml: \(file\): is missing"):
        load_task_set(tmp_path)


class TestDemoSet:
    """The set that is shipped."""

    task_set = load_task_set(DEMO)

    def test_it_is_large_enough(self) -> None:
        assert len(self.task_set.of_split(Split.TRAIN)) >= 120
        assert len(self.task_set.of_split(Split.HELDOUT)) >= 40

    def test_its_splits_share_no_package(self) -> None:
        train, heldout = ({task.package.name for task in self.task_set.of_split(split)} for split in Split)
        assert train.isdisjoint(heldout)

    def test_its_packages_are_permissively_licensed(self) -> None:
        assert {package.licence for package in self.task_set.packages} <= {"MIT", "BSD-3-Clause", "Apache-2.0"}

    def test_its_faults_are_undone_by_one_replacement(self) -> None:
        for task in self.task_set.tasks:
            fault = task.fault
            column = next(i for i, (old, new) in enumerate(zip(fault.old, fault.new, strict=False)) if old != new)
            while fault.old[column - 1] != " ":
                column -= 1
            site = Site(line=fault.line, column=column, operator=fault.right, kind=fault.kind, text=fault.old)
            assert site.with_operator(fault.wrong) == fault.new
            assert is_sed_restorable(site, fault.wrong)

    def test_its_lines_and_kinds_are_within_the_recipe(self) -> None:
        for task in self.task_set.tasks:
            assert task.line <= 2000
            assert task.fault.kind in {Kind.COMPARISON, Kind.ARITHMETIC}
            assert 1 <= len(task.listed_tests) <= 6

    def test_its_summary_is_current(self) -> None:
        assert json.loads((DEMO / "summary.json").read_text()) == self.task_set.summary()
        assert load_recipe(DEMO).packages == self.task_set.packages
