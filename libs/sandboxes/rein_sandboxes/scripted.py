"""A provider without isolation and without processes, for tests and benchmarks of those who use sandboxes.

It runs nothing: a function of yours says what each sandbox came to.
"""

from collections.abc import Awaitable, Callable

from rein_sandboxes.ports import Ending, SandboxResult, SandboxSpec

Script = Callable[[SandboxSpec], Awaitable[SandboxResult]]


def exited(status: int = 0, *, output: bytes = b"") -> SandboxResult:
    """A result of a command that ended by itself."""
    return SandboxResult(
        ending=Ending.EXITED,
        exit_status=status,
        output=output,
        num_output_bytes=len(output),
        wall_s=0.0,
        cpu_s=0.0,
        peak_memory_bytes=0,
    )


async def nothing(spec: SandboxSpec) -> SandboxResult:
    """Every command succeeds at once and says nothing."""
    return exited()


class ScriptedSandboxes:
    """A `SandboxProvider`."""

    def __init__(self, script: Script = nothing) -> None:
        self._script = script
        self.specs: list[SandboxSpec] = []
        self.num_running = 0

    async def run(self, spec: SandboxSpec) -> SandboxResult:
        self.specs.append(spec)
        self.num_running += 1
        try:
            return await self._script(spec)
        finally:
            self.num_running -= 1
