"""What the runner needs from outside, in its own words. Sandboxes and the bus have ports of their own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rein.v1 import events_pb2 as ev
from rein_harnesses import Command
from rein_runner.domain.session import SessionEnd


class Gateway(Protocol):
    """The gateway of one attempt."""

    def url_of(self, attempt: str) -> str:
        """Where the attempt's pipe leads: always the same gateway for the same attempt."""

    async def end(self, attempt: str, *, grant: str) -> SessionEnd | None:
        """Close the attempt's session; None = this gateway does not know it. Raises GatewayAway."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a task and a harness put into an attempt's sandbox."""

    kept: Path
    """Repository whose only commit is the tree as the agent gets it."""
    command: Command
    harness_version: str
    runtime: Path | None


class Workshop(Protocol):
    """Tasks and harnesses on this machine."""

    async def set_up(self, request: ev.RolloutRequested, *, tree: Path) -> Bench:
        """Write the task's tree and its repository. Raises TaskRefused, HarnessRefused, SandboxFailed."""
