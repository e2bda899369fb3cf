"""Patches out of trees a hostile agent has written, and into pristine ones. Every test runs real sandboxes."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rein_sandboxes.bubblewrap import Bubblewrap
from rein_sandboxes.errors import PatchRefused
from rein_sandboxes.trees import WorkPlace, apply_patch, copy_repository, extract_patch, keep_repository

pytestmark = pytest.mark.sandbox

BEFORE = {
    "a.py": "one\ntwo\n",
    "pkg/b.py": "x = 1\n",
    ".gitignore": "ignored/\n",
    "ignored/kept.txt": "in the commit\n",
}


def write(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)


class Tree:
    """One task's tree with its kept repository, and what the agent makes of it."""

    def __init__(self, folder: Path, *, provider: Bubblewrap) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.kept = folder / "kept.git"
        self.provider = provider
        write(self.tree, BEFORE)
        keep_repository(self.tree, target=self.kept)
        copy_repository(self.kept, tree=self.tree)

    def git(self, *arguments: str) -> str:
        argv = ["git", "-c", "safe.directory=*", *arguments]
        return subprocess.run(argv, cwd=self.tree, capture_output=True, text=True, check=True).stdout

    async def patch(self, *, most_bytes: int = 1 << 20) -> bytes:
        place = WorkPlace(name=f"test-{self.folder.name}", tree=self.tree, scratch=self.folder)
        return await extract_patch(self.provider, place=place, kept=self.kept, most_bytes=most_bytes)

    async def applied(self, patch: bytes) -> Path | None:
        """A pristine tree with the patch; None = it does not apply."""
        fresh = self.folder / "fresh"
        write(fresh, BEFORE)
        place = WorkPlace(name=f"test-{self.folder.name}", tree=fresh, scratch=self.folder)
        return fresh if await apply_patch(self.provider, place=place, patch=patch) else None


@pytest.fixture
def task(tmp_path: Path, provider: Bubblewrap) -> Tree:
    return Tree(tmp_path, provider=provider)


def test_the_agent_gets_one_commit_and_no_other_history(task: Tree) -> None:
    assert task.git("rev-list", "--all", "--count") == "1\n"
    assert task.git("fsck", "--lost-found") == ""
    assert task.git("remote") == task.git("stash", "list") == task.git("tag") == task.git("reflog") == ""
    assert task.git("status", "--porcelain") == ""
    assert "ignored/kept.txt" in task.git("ls-files")
    assert str(task.folder) not in "".join(
        path.read_text() for path in (task.tree / ".git").glob("*") if path.is_file() and path.name != "index"
    )


async def test_no_change_is_an_empty_patch(task: Tree) -> None:
    assert await task.patch() == b""


async def test_changed_new_binary_and_deleted_files_come_through(task: Tree) -> None:
    write(task.tree, {"a.py": "one\n2\n", "new/c.py": "new\n", "no newline": "x"})
    (task.tree / "image.bin").write_bytes(bytes(range(256)) * 4)
    (task.tree / "pkg/b.py").unlink()
    (task.tree / "pkg/run").write_text("#!/bin/sh\n")
    (task.tree / "pkg/run").chmod(0o755)
    fresh = await task.applied(await task.patch())
    assert fresh is not None
    assert (fresh / "a.py").read_text() == "one\n2\n"
    assert (fresh / "new/c.py").read_text() == "new\n"
    assert (fresh / "image.bin").read_bytes() == bytes(range(256)) * 4
    assert not (fresh / "pkg/b.py").exists()
    assert os.access(fresh / "pkg/run", os.X_OK)


async def test_what_the_agent_commits_or_hides_from_git_is_still_its_patch(task: Tree) -> None:
    write(task.tree, {"a.py": "one\n2\n"})
    task.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--all", "-m", "done")
    task.git("update-index", "--assume-unchanged", "pkg/b.py")
    write(task.tree, {"pkg/b.py": "x = 2\n"})
    patch = await task.patch()
    assert b"+2\n" in patch
    assert b"+x = 2\n" in patch


async def test_a_removed_or_broken_repository_changes_nothing(task: Tree) -> None:
    write(task.tree, {"a.py": "one\n2\n"})
    shutil.rmtree(task.tree / ".git")
    (task.tree / ".git").write_text("gitdir: /nowhere\n")
    assert b"+2\n" in await task.patch()


EVIL = "touch /workspace/pwned /tmp/pwned; echo pwned"


def hooks(tree: Path) -> None:
    for name in ("pre-commit", "post-index-change", "post-checkout", "fsmonitor-watchman"):
        write(tree, {f".git/hooks/{name}": f"#!/bin/sh\n{EVIL}\n"})
        (tree / f".git/hooks/{name}").chmod(0o755)


def configuration(tree: Path) -> None:
    (tree / ".git/config").write_text(
        f'[core]\n\tfsmonitor = "{EVIL}"\n\tpager = "{EVIL}"\n\thooksPath = .git/hooks\n'
        f'[diff]\n\texternal = "{EVIL}"\n[diff "evil"]\n\ttextconv = "{EVIL}"\n\tcommand = "{EVIL}"\n'
        f'[filter "evil"]\n\tclean = "{EVIL}"\n\tsmudge = "{EVIL}"\n\tprocess = "{EVIL}"\n'
        "[include]\n\tpath = /workspace/more\n"
    )


def attributes(tree: Path) -> None:
    write(tree, {".gitattributes": "* filter=evil diff=evil ident text=auto eol=crlf working-tree-encoding=UTF-16\n"})
    write(tree, {".git/info/attributes": "* filter=evil diff=evil\n"})


def nested_repository(tree: Path) -> None:
    inner = tree / "inner"
    write(inner, {"deep.py": "deep\n"})
    subprocess.run(["git", "init", "-q", str(inner)], check=True)
    subprocess.run(["git", "-C", str(inner), "add", "."], check=True)
    me = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(inner), *me, "commit", "-qm", "x"], check=True)
    (inner / ".git/config").write_text(f'[core]\n\tfsmonitor = "{EVIL}"\n')


def odd_files(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "loop").symlink_to("loop")
    (tree / "sub").symlink_to("/")
    (tree / 'new\nline \t"quote".py').write_text("odd\n")
    (tree / "secret").write_text("x")
    (tree / "secret").chmod(0)
    deep = tree
    for _ in range(60):
        deep = deep / "deep"
    deep.mkdir(parents=True)


@pytest.mark.parametrize("trap", [hooks, configuration, attributes, nested_repository, odd_files])
async def test_traps_are_neither_run_nor_obeyed(task: Tree, trap: Callable[[Path], None]) -> None:
    write(task.tree, {"a.py": "one\n2\n"})
    hooks(task.tree)
    configuration(task.tree)
    trap(task.tree)
    patch = await task.patch()
    assert b"-two\n+2\n" in patch
    assert b"pwned" not in patch.replace(EVIL.encode(), b"")
    assert not (task.tree / "pwned").exists()
    assert (await task.applied(patch)) is not None


async def test_files_of_a_nested_repository_come_through(task: Tree) -> None:
    nested_repository(task.tree)
    fresh = await task.applied(await task.patch())
    assert fresh is not None
    assert (fresh / "inner/deep.py").read_text() == "deep\n"
    assert not (fresh / "inner/.git").exists()


async def test_a_link_to_a_file_of_the_host_does_not_bring_its_contents(task: Tree, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret contents")
    (task.tree / "a.py").unlink()
    (task.tree / "a.py").symlink_to(tmp_path / "secret")
    assert b"secret contents" not in await task.patch()


async def test_byte_code_and_caches_are_no_part_of_the_patch(task: Tree) -> None:
    write(task.tree, {"pkg/__pycache__/b.cpython-311.pyc": "x", ".pytest_cache/v/x": "x"})
    assert await task.patch() == b""


async def test_a_patch_that_is_too_large_is_the_policys(task: Tree) -> None:
    (task.tree / "big.bin").write_bytes(os.urandom(300_000))
    with pytest.raises(PatchRefused) as refusal:
        await task.patch(most_bytes=100_000)
    assert refusal.value.code == "policy.patch_too_large"


def new_file(path: bytes, *, mode: bytes = b"100644", line: bytes = b"x") -> bytes:
    head = b"diff --git a/%b b/%b\nnew file mode %b\n--- /dev/null\n+++ b/%b\n" % (path, path, mode, path)
    return head + b"@@ -0,0 +1 @@\n+" + line + b"\n"


OTHER_CONTEXT = b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-three\n+2\n"


@pytest.mark.parametrize(
    "patch",
    [b"garbage", OTHER_CONTEXT, new_file(b"../out"), new_file(b".git/config")],
    ids=["garbage", "other context", "out of the tree", "into a repository"],
)
async def test_a_patch_that_does_not_apply_is_told(task: Tree, patch: bytes) -> None:
    assert await task.applied(patch) is None
    assert not (task.folder / "out").exists()


async def test_a_patch_through_a_link_does_not_apply(task: Tree) -> None:
    link = new_file(b"l", mode=b"120000", line=b"/tmp") + b"\\ No newline at end of file\n"
    assert await task.applied(link + new_file(b"l/x")) is None
