"""What the grader needs from outside, in its own words. The bus has a port of its own."""

from typing import Protocol

from rein.v1 import events_pb2 as ev
from rein_grader.domain.grade import Grade


class Examiner(Protocol):
    """Runs a task's hidden tests on a patch."""

    async def examine(self, finished: ev.RolloutFinished, *, patch: bytes) -> Grade:
        """Raises SandboxFailed, VerifierFailed, TaskRefused."""
