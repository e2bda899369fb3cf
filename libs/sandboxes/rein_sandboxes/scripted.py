"""A provider without isolation and without processes, for tests and benchmarks of those who use sandboxes.

It runs nothing: a function of yours says what each sandbox came to. `one_model_call` is the cheapest that still does
what a harness must: it asks the model once, as the sandbox's pipe would.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import urlsplit

from rein_contracts.grants import GRANT_HEADER
from rein_sandboxes.ports import Ending, PipeTarget, PipeUse, SandboxResult, SandboxSpec

Script = Callable[[SandboxSpec], Awaitable[SandboxResult]]

_QUESTION = b'{"model":"policy","messages":[{"role":"user","content":"Say something."}]}'


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


async def one_model_call(spec: SandboxSpec) -> SandboxResult:
    """One chat completion where there is a pipe; exit status 1 unless it was answered with 200."""
    if spec.pipe is None:
        return exited()
    answer = await _ask(spec.pipe)
    return replace(exited(int(b" 200 " not in answer.partition(b"\r\n")[0])), pipe=PipeUse(num_requests=1))


async def _ask(pipe: PipeTarget) -> bytes:
    """The head of the answer; its body is read to the end."""
    place = urlsplit(pipe.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n{GRANT_HEADER}: {pipe.grant}\r\n"
        rest = f"connection: close\r\ncontent-type: application/json\r\ncontent-length: {len(_QUESTION)}\r\n\r\n"
        writer.write(f"{head}{rest}".encode() + _QUESTION)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.read()
        return answer
    finally:
        writer.close()


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
