"""What an agent gets, and what is laid over what it leaves."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rein_tasks.cache import fill_cache, unpack
from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import Package, Task
from rein_tasks.trees import materialise, overlay_tests

MakeTask = Callable[..., Task]


def files_of(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}


def test_the_agent_gets_the_faulty_source_and_no_test(make_task: MakeTask, cache: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    materialise(make_task(), dest=tree, cache=cache)
    assert files_of(tree) == {"LICENSE", "tiny/__init__.py", "tiny/core.py"}
    lines = (tree / "tiny/core.py").read_text().splitlines()
    assert lines[4] == "    return number >= limit"
    assert lines[8] == "    return first + second"


def test_a_tree_is_not_made_over_another(make_task: MakeTask, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").touch()
    with pytest.raises(FileExistsError):
        materialise(make_task(), dest=tmp_path / "tree", cache=cache)


def test_a_line_that_is_not_the_tasks_is_refused(make_task: MakeTask, cache: Path, tmp_path: Path) -> None:
    fault = make_task().fault.model_copy(update={"line": 6})
    with pytest.raises(TaskSetBroken, match=r"tiny-core-0005: tiny/core\.py: fault\.old: line 6 is not"):
        materialise(make_task(fault=fault), dest=tmp_path / "tree", cache=cache)


def test_a_package_that_was_not_unpacked_is_refused(package: Package, make_task: MakeTask, tmp_path: Path) -> None:
    with pytest.raises(TaskSetBroken, match=r"tiny 1\.0 is not unpacked; run `python -m rein_tasks\.build"):
        materialise(make_task(), dest=tmp_path / "tree", cache=tmp_path / "elsewhere")


def test_an_archive_with_another_digest_is_refused(package: Package, cache: Path) -> None:
    archive = cache / "archives" / package.archive
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(TaskSetBroken, match=r"sha256: tiny 1\.0 should be .* and is .*; delete it"):
        unpack(package, cache=cache)
    assert not (cache / "packages" / package.folder_name).exists()


def test_a_missing_archive_is_refused(package: Package, cache: Path) -> None:
    (cache / "archives" / package.archive).unlink()
    with pytest.raises(TaskSetBroken, match=r"archive: the archive of tiny 1\.0 is missing"):
        unpack(package, cache=cache)


def test_a_layout_that_the_archive_does_not_have_is_refused(package: Package, cache: Path) -> None:
    with pytest.raises(TaskSetBroken, match="tests: the archive has no test"):
        unpack(package.model_copy(update={"tests": {"test": "tests"}}), cache=cache)


def test_a_filled_cache_is_left_alone(unpacked: Package, cache: Path) -> None:
    (cache / "archives" / unpacked.archive).unlink()
    fill_cache([unpacked], cache=cache, build_backends=())


def test_hidden_tests_replace_what_the_agent_put_there(make_task: MakeTask, cache: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    materialise(make_task(), dest=tree, cache=cache)
    (tree / "tests").mkdir()
    (tree / "tests" / "conftest.py").write_text("raise SystemExit(0)")
    overlay_tests(make_task(), dest=tree, cache=cache)
    assert files_of(tree / "tests") == {"test_core.py"}


@pytest.mark.parametrize("place", ["tests", "tests/test_core.py"])
def test_no_link_of_the_agent_is_followed(make_task: MakeTask, cache: Path, tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "test_core.py").write_text("precious")
    tree = tmp_path / "tree"
    materialise(make_task(), dest=tree, cache=cache)
    link = tree / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside if place == "tests" else outside / "test_core.py")
    overlay_tests(make_task(), dest=tree, cache=cache)
    assert (outside / "test_core.py").read_text() == "precious"
    assert "def test_total" in (tree / "tests" / "test_core.py").read_text()


def test_a_pipe_in_the_place_of_the_tests_is_removed(make_task: MakeTask, cache: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    materialise(make_task(), dest=tree, cache=cache)
    os.mkfifo(tree / "tests")
    overlay_tests(make_task(), dest=tree, cache=cache)
    assert (tree / "tests" / "test_core.py").is_file()
