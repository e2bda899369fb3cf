"""Folders of live sandboxes, and what dead owners left."""

import json
import os
import time
from pathlib import Path

import pytest

from rein_sandboxes.errors import SandboxFailed
from rein_sandboxes.folders import OWNER_FILE, owned_folder, remove, sweep


async def test_a_folder_names_its_owner_and_is_gone_afterwards(tmp_path: Path) -> None:
    async with owned_folder(tmp_path, name="one", about={"run": "r", "attempt": "r.g0/1#1"}, most_s=60) as folder:
        owner = json.loads((folder / OWNER_FILE).read_text())
        assert (owner["run"], owner["attempt"], owner["pid"]) == ("r", "r.g0/1#1", os.getpid())
    assert list(tmp_path.iterdir()) == []


async def test_a_name_in_use_is_refused(tmp_path: Path) -> None:
    async with owned_folder(tmp_path, name="one", about={}, most_s=60):
        with pytest.raises(SandboxFailed, match="cannot be made"):
            async with owned_folder(tmp_path, name="one", about={}, most_s=60):
                pass
        assert [path.name for path in tmp_path.iterdir()] == ["one"]


async def test_a_sweep_takes_the_dead_and_leaves_the_living(tmp_path: Path) -> None:
    async with owned_folder(tmp_path, name="living", about={}, most_s=60) as living:
        owner = json.loads((living / OWNER_FILE).read_text())
        left = {
            "dead": {**owner, "pid": 1 << 22},
            "recycled": {**owner, "pid_started": "1"},
            "elsewhere": {**owner, "host": "other"},
            "elsewhere-long-ago": {**owner, "host": "other", "until_s": time.time() - 1},
        }
        for name, about in left.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / OWNER_FILE).write_text(json.dumps(about))
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / OWNER_FILE).write_text("{")
        (tmp_path / ".new-4194304-half").mkdir()
        (tmp_path / "not ours").mkdir()
        assert await sweep(tmp_path) == 5
        assert {path.name for path in tmp_path.iterdir()} == {"living", "elsewhere", "not ours"}


async def test_a_sweep_of_nothing_makes_the_folder(tmp_path: Path) -> None:
    assert await sweep(tmp_path / "state") == 0
    assert (tmp_path / "state").is_dir()


async def test_removing_follows_no_link_and_minds_no_depth_or_permission(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("stays")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path / "outside")
    (tree / "locked").mkdir()
    (tree / "locked/file").write_text("x")
    (tree / "locked").chmod(0)
    here = os.open(tree, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    await remove(tree)
    assert not tree.exists()
    assert (tmp_path / "outside/file").read_text() == "stays"
