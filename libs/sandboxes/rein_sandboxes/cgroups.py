"""Memory and process limits by control groups, version 1 or 2, where this process may make groups.

One group per sandbox, below this process's own (or a delegated one), removed with it. Reaching the memory limit is
noticed through the kernel, not by polling: `MemoryAlarm` becomes readable. Where no group can be made, `measuring`
takes over.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PREFIX = "rein-"
"""Of a group's name; the id of the process that made it and the sandbox's name follow."""


class ControlGroup(Protocol):
    """One sandbox's group."""

    def add(self, pid: int) -> None: ...

    def alarm(self) -> int | None:
        """A descriptor that becomes readable when memory ran out; None = the kernel kills the whole group itself."""

    def num_memory_kills(self) -> int: ...

    def peak_memory_bytes(self) -> int | None: ...

    def remove(self) -> None:
        """Forget it; its processes are dead."""


class ControlGroups(Protocol):
    """Makes groups; chosen once by `find_control_groups`."""

    def make(self, name: str, *, memory_bytes: int | None, processes: int | None) -> ControlGroup:
        """Raises OSError."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where groups are made."""


def find_control_groups(
    *, mounts: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> ControlGroups | None:
    """What this process may use; None = nothing."""
    lines = [line.split(":", 2) for line in own.read_text().splitlines()] if own.exists() else []
    paths = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    candidates: list[ControlGroups] = []
    if {"memory", "pids"} <= paths.keys():
        candidates.append(GroupsV1(memory=mounts / "memory" / paths["memory"], pids=mounts / "pids" / paths["pids"]))
    elif "" in paths:
        candidates.append(GroupsV2(parent=mounts / paths[""]))
    return next((groups for groups in candidates if _works(groups)), None)


def _works(groups: ControlGroups) -> bool:
    try:
        groups.make(f"probe-{os.getpid()}", memory_bytes=1 << 26, processes=8).remove()
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class GroupsV1:
    """Two folders a sandbox, one per controller."""

    memory: Path
    pids: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.memory, self.pids)

    def make(self, name: str, *, memory_bytes: int | None, processes: int | None) -> "GroupV1":
        group = GroupV1(memory=self.memory / _name(name), pids=self.pids / _name(name))
        try:
            group.memory.mkdir()
            group.pids.mkdir()
            if memory_bytes is not None:
                (group.memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
            if processes is not None:
                (group.pids / "pids.max").write_text(str(processes))
        except OSError:
            group.remove()
            raise
        return group


@dataclass(frozen=True, slots=True)
class GroupV1:
    """A pair of version 1 groups."""

    memory: Path
    pids: Path

    def add(self, pid: int) -> None:
        for folder in (self.memory, self.pids):
            (folder / "cgroup.procs").write_text(str(pid))

    def alarm(self) -> int | None:
        control = os.open(self.memory / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            (self.memory / "cgroup.event_control").write_text(f"{event} {control}")
        finally:
            os.close(control)
        return event

    def num_memory_kills(self) -> int:
        return _field(self.memory / "memory.oom_control", "oom_kill")

    def peak_memory_bytes(self) -> int | None:
        return int((self.memory / "memory.max_usage_in_bytes").read_text())

    def remove(self) -> None:
        _remove(self.memory, self.pids)


@dataclass(frozen=True, slots=True)
class GroupsV2:
    """One folder a sandbox. Needs the controllers delegated to groups below `parent`."""

    parent: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.parent,)

    def make(self, name: str, *, memory_bytes: int | None, processes: int | None) -> "GroupV2":
        group = GroupV2(self.parent / _name(name))
        try:
            group.folder.mkdir()
            (group.folder / "memory.max").write_text("max" if memory_bytes is None else str(memory_bytes))
            (group.folder / "memory.oom.group").write_text("1")
            (group.folder / "pids.max").write_text("max" if processes is None else str(processes))
            if memory_bytes is not None and (group.folder / "memory.swap.max").exists():
                (group.folder / "memory.swap.max").write_text("0")
        except OSError:
            group.remove()
            raise
        return group


@dataclass(frozen=True, slots=True)
class GroupV2:
    """A version 2 group; the kernel kills all of it when its memory runs out."""

    folder: Path

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    def alarm(self) -> int | None:
        return None

    def num_memory_kills(self) -> int:
        return _field(self.folder / "memory.events", "oom_kill")

    def peak_memory_bytes(self) -> int | None:
        file = self.folder / "memory.peak"
        return int(file.read_text()) if file.exists() else None

    def remove(self) -> None:
        _remove(self.folder)


def sweep(groups: ControlGroups) -> int:
    """Remove the groups whose makers are dead; how many there were."""
    leftovers = [path for parent in groups.folders for path in _left(parent)]
    _remove(*leftovers)
    return len(leftovers)


def _name(sandbox: str) -> str:
    return f"{PREFIX}{os.getpid()}-{sandbox}"


def _left(parent: Path) -> list[Path]:
    groups = parent.glob(f"{PREFIX}*")
    return [path for path in groups if not Path("/proc", path.name.removeprefix(PREFIX).partition("-")[0]).exists()]


def _field(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _remove(*folders: Path) -> None:
    for folder in folders:
        with suppress(FileNotFoundError, OSError):  # busy: a process is not quite gone; the next sweep takes it
            folder.rmdir()
