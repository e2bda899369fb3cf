"""Folders of live sandboxes on disk, and what dead owners left of them.

<state>/<name>/owner.json says who made it and how long it may exist at most. A folder appears with its owner file, by
rename. `sweep` removes what no living process answers for; deleting never follows a link the agent made.
"""

import asyncio
import json
import logging
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rein_sandboxes.errors import SandboxFailed

log = logging.getLogger(__name__)

OWNER_FILE = "owner.json"
_NEW = ".new-"


@asynccontextmanager
async def owned_folder(state: Path, *, name: str, about: Mapping[str, str], most_s: float) -> AsyncIterator[Path]:
    """A new folder that is gone afterwards. `about` names its run, rollout, attempt; `most_s` bounds its life."""
    folder = state / name
    try:
        _make(folder, owner={**about, **_this_process(), "until_s": time.time() + most_s})
    except OSError as error:
        raise SandboxFailed("sandbox.no_folder", f"{folder} cannot be made: {error}") from error
    try:
        yield folder
    finally:
        await asyncio.shield(remove(folder))


async def sweep(state: Path) -> int:
    """Remove the folders of dead owners; how many there were."""
    dead = await asyncio.to_thread(_dead_folders, state)
    for folder in dead:
        await remove(folder)
    if dead:
        log.info("sandbox.folders_swept", extra={"num_folders": len(dead), "state": str(state)})
    return len(dead)


async def remove(folder: Path) -> None:
    """Remove it, however deep and whatever its permissions."""
    await asyncio.to_thread(_remove, folder)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)  # follows no link, whatever moves meanwhile
    except (OSError, RecursionError):
        delete = ("rm", "-rf", "--one-file-system", "--", str(folder))
        if _call(*delete):
            _call("chmod", "-R", "u+rwX", "--", str(folder))
            _call(*delete)
    if folder.exists():
        log.error("sandbox.folder_not_removed", extra={"folder": str(folder)})


def _dead_folders(state: Path) -> list[Path]:
    state.mkdir(parents=True, exist_ok=True)
    return [folder for folder in state.iterdir() if folder.is_dir() and _is_dead(folder)]


def _make(folder: Path, *, owner: Mapping[str, object]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = folder.with_name(f"{_NEW}{os.getpid()}-{folder.name}")
    made.mkdir()
    (made / OWNER_FILE).write_text(json.dumps(owner))
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)
        raise


def _this_process() -> dict[str, object]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": _start_of(os.getpid())}


def _is_dead(folder: Path) -> bool:
    if folder.name.startswith(_NEW):
        pid = folder.name.removeprefix(_NEW).partition("-")[0]
        return not (pid.isdigit() and _start_of(int(pid)))
    try:
        owner = json.loads((folder / OWNER_FILE).read_bytes())
        is_ours = owner["host"] == socket.gethostname()
        is_alive = _start_of(owner["pid"]) == owner["pid_started"]
        return not is_alive if is_ours else owner["until_s"] < time.time()
    except FileNotFoundError:
        return False  # not one of these folders
    except (ValueError, KeyError, TypeError):
        return True


def _start_of(pid: int) -> str | None:
    """When the process was started, in the kernel's words; None = there is none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[19]
    return None


def _call(*argv: str) -> int:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode
