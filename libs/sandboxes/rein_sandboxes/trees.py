"""Git around a tree an agent writes: one commit before, a patch out after, a patch into a pristine tree for grading.

The commit is made by trusted code from trusted files, into a repository kept outside the agent's reach; the agent gets
a copy. The patch is taken from the *kept* repository against the agent's tree, inside a sandbox that sees the tree
read-only, so nothing the agent wrote (hooks, configuration, filters, file system monitors, attributes, links, nested
repositories) is executed or obeyed, and the result is bounded in size.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rein_sandboxes.errors import PatchRefused, SandboxFailed
from rein_sandboxes.ports import WORKSPACE, Ending, Mount, SandboxLimits, SandboxProvider, SandboxSpec

#: What tools leave behind; no part of a repair.
EXCLUDED = ("__pycache__/", "*.py[co]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/")
#: Wins over every .gitattributes of the tree: no conversion, no filter, no driver.
_ATTRIBUTES = "* -text -filter -ident !eol !working-tree-encoding !diff !merge !export-subst\n"
_WHEN = "2026-01-01T00:00:00Z"
_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.quotePath": "true",
    "core.autocrlf": "false",
    "core.symlinks": "true",
    "core.logAllRefUpdates": "false",
    "core.fsync": "none",
    "diff.external": "",
    "gc.auto": "0",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
_KEPT = PurePosixPath("/opt/rein/kept.git")
_INDEX = PurePosixPath("/opt/rein/index")
_PATCH = "/opt/rein/patch"
_EXTRACT_FILE = Path(__file__).with_name("extract_patch.sh")
_EXTRACT = PurePosixPath("/opt/rein/extract")
_WALL_OF_GIT_S = 120.0
_MEMORY_OF_GIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """Where one attempt's tree and its sandboxes' own files are, on the host."""

    name: str
    """For sandboxes; unique among live ones."""
    tree: Path
    scratch: Path


def keep_repository(tree: Path, *, target: Path) -> None:
    """Make `target` a repository whose only commit is `tree`. For trusted trees; replaces nothing that is there."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".keeping-", dir=target.parent) as scratch:
        made = Path(scratch, "git")
        _commit(tree, repository=made)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another attempt has just made the same
                raise


def _commit(tree: Path, *, repository: Path) -> None:
    environment = {**_git_environment(), "GIT_DIR": str(repository), "GIT_WORK_TREE": str(tree), "PATH": os.defpath}
    for about in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{about}_NAME": "task", f"GIT_{about}_EMAIL": "task@localhost", f"GIT_{about}_DATE": _WHEN}

    def git(*arguments: str) -> None:
        done = subprocess.run(["git", *arguments], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SandboxFailed("sandbox.commit_failed", f"git {arguments[0]}: {done.stderr.strip()[:500]}")

    git("init", "--quiet", "--template=", "--initial-branch=main")
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info/attributes").write_text(_ATTRIBUTES)
    (repository / "info/exclude").write_text("".join(f"{pattern}\n" for pattern in EXCLUDED))
    git("add", "--all", "--force", "--", ".")
    git("commit", "--quiet", "--allow-empty", "--message=Task")
    git("repack", "-a", "-d", "--quiet")
    (repository / "config").write_text("[core]\n\trepositoryformatversion = 0\n")  # no trace of this machine's paths


async def extract_patch(provider: SandboxProvider, *, place: WorkPlace, kept: Path, most_bytes: int) -> bytes:
    """What the agent changed, as `git apply` takes it; empty for no change. Raises SandboxFailed, PatchRefused."""
    index = place.scratch / "index"
    try:
        index.mkdir(exist_ok=True)
        shutil.copyfile(kept / "index", index / "index")
    except OSError as error:
        raise SandboxFailed("sandbox.no_tree", f"the index of {kept} cannot be copied: {error}") from error
    environment = {
        **_git_environment(),
        "GIT_DIR": str(_KEPT),
        "GIT_WORK_TREE": str(WORKSPACE),
        "GIT_INDEX_FILE": f"{_INDEX}/index",
        "GIT_OBJECT_DIRECTORY": "/tmp",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{_KEPT}/objects",
    }
    result = await provider.run(
        SandboxSpec(
            name=f"{place.name}.diff",
            argv=("/bin/bash", str(_EXTRACT)),
            scratch=place.scratch,
            limits=_limits(most_bytes),
            env=environment,
            mounts=(
                Mount(place.tree, WORKSPACE),
                Mount(kept, _KEPT),
                Mount(_EXTRACT_FILE, _EXTRACT),
                Mount(index, _INDEX, True),
            ),
        )
    )
    if result.ending is Ending.OUTPUT_FLOOD:
        raise PatchRefused("policy.patch_too_large", f"the patch has more than {most_bytes} bytes")
    if result.ending is not Ending.EXITED:
        raise PatchRefused(
            f"policy.patch_{result.ending.value}", "git could not take the patch within its limits of time and memory"
        )
    if result.exit_status:
        detail = result.output[-500:].decode(errors="replace").strip()
        raise SandboxFailed("sandbox.patch_failed", f"git ended with {result.exit_status} taking the patch: {detail}")
    return result.output


async def apply_patch(provider: SandboxProvider, *, place: WorkPlace, patch: bytes) -> bool:
    """Apply it to the pristine tree at `place`; False = it does not apply. Raises SandboxFailed."""
    result = await provider.run(
        SandboxSpec(
            name=f"{place.name}.apply",
            argv=("/usr/bin/git", "apply", "--whitespace=nowarn", _PATCH),
            scratch=place.scratch,
            limits=_limits(1 << 20),
            env={**_git_environment(), "GIT_CEILING_DIRECTORIES": "/"},
            mounts=(Mount(place.tree, WORKSPACE, is_writable=True),),
            files={_PATCH: patch},
        )
    )
    return result.ending is Ending.EXITED and result.exit_status == 0


def copy_repository(kept: Path, *, tree: Path) -> None:
    """Give the agent its own copy of the kept repository."""
    shutil.copytree(kept, tree / ".git", copy_function=shutil.copyfile)


def _limits(most_output_bytes: int) -> SandboxLimits:
    return SandboxLimits(
        wall_s=_WALL_OF_GIT_S,
        memory_bytes=_MEMORY_OF_GIT_BYTES,
        processes=64,
        kept_output_bytes=most_output_bytes,
        output_bytes=most_output_bytes,
    )


def _git_environment() -> Mapping[str, str]:
    environment = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    }
    for number, (key, value) in enumerate(_CONFIG.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment
