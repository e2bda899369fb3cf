"""Processes of a stack: started in sessions of their own, recorded in files, stopped by record and verified dead.

A record holds the process id and its start time, so that a number the system has given to another process since is
never signalled. Stopping a process also ends every descendant it left behind.
"""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from rein_cli.stack.home import Home

#: Start times are compared with this tolerance, seconds; the system counts them in ticks.
TICK_S = 0.5
#: Between two looks at a process that is to end, and how long one that was killed may take, seconds.
POLL_S, KILLED_S = 0.02, 10.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A process this stack started."""

    name: str
    order: int
    """Place in the order of start; stopped in reverse."""
    pid: int
    created_s: float
    """Its start time, Unix seconds."""

    def process(self) -> psutil.Process | None:
        """The living process, if it is still the one that was started."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.created_s) < TICK_S
        except psutil.NoSuchProcess:
            return None
        return process if is_same and _is_alive(process) else None


def start(home: Home, name: str, *, order: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start `command` with its output in the stack's log of that name; records it."""
    with home.log(name).open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=home.path
        )
    note(home, name, order=order, pid=process.pid)
    return process


def note(home: Home, name: str, *, order: int, pid: int) -> None:
    """Put a process that was just started on record."""
    record(home, Recorded(name, order=order, pid=pid, created_s=psutil.Process(pid).create_time()))


def record(home: Home, entry: Recorded) -> None:
    (home.processes / f"{entry.name}.json").write_text(json.dumps(asdict(entry)))


def recorded(home: Home) -> list[Recorded]:
    """Every process on record, in order of start."""
    entries = [Recorded(**json.loads(file.read_text())) for file in home.processes.glob("*.json")]
    return sorted(entries, key=lambda entry: entry.order)


def stop(home: Home, entry: Recorded, *, patience_s: float) -> bool:
    """End the process and its descendants, by force after `patience_s`; whether it went by itself. Drops the record."""
    went_by_itself = True
    if process := entry.process():
        family = [process, *process.children(recursive=True)]
        _signal(process, psutil.Process.terminate)
        went_by_itself = _have_ended([process], within_s=patience_s)
        for member in family:
            _signal(member, psutil.Process.kill)
        _have_ended(family, within_s=KILLED_S)
    (home.processes / f"{entry.name}.json").unlink(missing_ok=True)
    return went_by_itself


def _have_ended(processes: Sequence[psutil.Process], *, within_s: float) -> bool:
    """Wait until none of them runs. One that has ended but was not collected by its parent yet has ended."""
    deadline_s = time.monotonic() + within_s
    while any(map(_is_alive, processes)):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, send: Callable[[psutil.Process], None]) -> None:
    with suppress(psutil.NoSuchProcess):
        send(process)


def error_line(log: Path, *, service: str) -> str:
    """The line with which a service said why it would not start, or the log's last one."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [line for line in lines if line.startswith(f"rein-{service}: ")]
    return (said or [line for line in lines if line.strip()] or ["(its log is empty)"])[-1][:2000]
