"""What services ask of sandboxes, in their own words.

A sandbox is one call: `run(spec)` returns when everything inside is dead, and cancelling it kills everything inside
first. A limit that was reached is a result; a sandbox that could not be made or trusted raises `SandboxFailed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Protocol

WORKSPACE = PurePosixPath("/workspace")
"""Where the tree under work is, in every sandbox."""

PIPE_URL = "http://127.0.0.1:8000"
"""Where a sandbox with a pipe finds the gateway."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder or file shown inside."""

    host: Path
    inside: PurePosixPath
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Bounds on the whole sandbox; None = not bounded."""

    wall_s: float
    """From the start; the end is a kill. No single process gets more CPU time than this either."""
    memory_bytes: int | None = None
    """Resident memory of all processes, files in memory included."""
    processes: int | None = None
    """Processes and threads alive at once."""
    kept_output_bytes: int = 1 << 20
    """The newest output kept."""
    output_bytes: int | None = None
    """Output above this ends the sandbox."""
    file_bytes: int = 1 << 30
    """Size of a single file, and of each file system in memory."""


@dataclass(frozen=True, slots=True)
class PipeTarget:
    """Where the pipe leads, and as whom."""

    url: str
    """`http://host:port` of a gateway."""
    grant: str = field(repr=False)
    """Added to each request outside the sandbox."""
    patience_s: float = 20.0
    """How long a request waits for a gateway that refuses connections before it is answered with 503."""


@dataclass(frozen=True, slots=True)
class PipeUse:
    """What went through a pipe."""

    num_requests: int = 0
    num_unreachable: int = 0
    """Requests that found no gateway."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Everything about one sandbox."""

    name: str
    """Unique on this machine among live sandboxes; [A-Za-z0-9._-] only."""
    argv: tuple[str, ...]
    """Found by absolute path or in /usr/bin."""
    scratch: Path
    """An existing host folder this sandbox may keep its own files in; its owner removes it."""
    limits: SandboxLimits
    env: Mapping[str, str] = field(default_factory=dict)
    """All of the environment beside HOME, PATH, LANG, USER and TMPDIR."""
    mounts: tuple[Mount, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Read-only files by absolute path inside."""
    pipe: PipeTarget | None = None


class Ending(Enum):
    """How a sandbox came to its end. The values are the last words of failure codes."""

    EXITED = "exited"
    OUT_OF_TIME = "out_of_time"
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_PROCESSES = "out_of_processes"
    OUTPUT_FLOOD = "output_flood"


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What came of it. Everything that ran inside is dead."""

    ending: Ending
    exit_status: int
    """Of the command; negative = the signal that ended it. -9 whenever `ending` is not EXITED."""
    output: bytes
    """The newest `kept_output_bytes` of standard output and standard error together."""
    num_output_bytes: int
    wall_s: float
    cpu_s: float | None
    """Of all processes; None = not measured."""
    peak_memory_bytes: int | None
    """Most memory charged at once, file cache included where cgroups measure it; None = not measured."""
    pipe: PipeUse = PipeUse()


class SandboxProvider(Protocol):
    """Open one per process with `async with`; run any number of sandboxes at once."""

    async def run(self, spec: SandboxSpec) -> SandboxResult:
        """Run it to its end. Raises SandboxFailed. Cancelling kills what runs inside before it returns."""
