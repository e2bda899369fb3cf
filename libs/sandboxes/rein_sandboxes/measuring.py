"""Memory and process limits where no control group can be had: look at the process tree, often, and say when to kill.

A limit on address space is no substitute: Bun and V8 reserve far more than they use. Memory of a process is what it
shares with nobody; files in memory are bounded by the size of each file system instead.
"""

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Load:
    """A process tree at one moment."""

    memory_bytes: int
    num_processes: int
    """Threads included."""


def measure(pid: int, *, most_processes: int, proc: Path = Path("/proc")) -> Load:
    """The tree below and including `pid`; zero when it is gone.

    Counting stops above `most_processes`: a tree may grow faster than it can be walked.
    """
    memory_bytes = num_processes = 0
    waiting = [pid]
    while waiting and num_processes <= most_processes:
        folder = proc / str(waiting.pop())
        try:
            _, resident, shared, *_ = (folder / "statm").read_text().split()
            for task in (folder / "task").iterdir():
                num_processes += 1
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        memory_bytes += (int(resident) - int(shared)) * PAGE_BYTES
    return Load(memory_bytes=memory_bytes, num_processes=num_processes)
