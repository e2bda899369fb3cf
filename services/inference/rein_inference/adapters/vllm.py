"""One vLLM server as a child process, with its control calls."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import httpx

from rein_inference.adapters.calls import EngineCalls
from rein_inference.config import EngineSettings
from rein_inference.errors import EngineLost
from rein_service.clock import Clock

HEALTH_CHECK_S = 0.5

#: Longer than the guard's own patience.
STOP_S = 10.0


class VllmEngine(EngineCalls):
    """Async context manager; the process ends with it."""

    def __init__(self, command: Sequence[str], *, settings: EngineSettings, clock: Clock) -> None:
        self._client = httpx.AsyncClient(base_url=settings.url, timeout=settings.call_s, trust_env=False)
        super().__init__(self._client)
        self._command = command
        self._settings = settings
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
        await self._client.aclose()

    async def start(self) -> None:
        await self.stop()
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        deadline_s = self._clock.monotonic() + self._settings.start_s
        while not await self.is_healthy():
            if self._process.returncode is not None:
                raise EngineLost(f"{await self.ended()} while starting; its output stands above in this log")
            if self._clock.monotonic() > deadline_s:
                raise EngineLost(f"the engine did not answer within {self._settings.start_s} s (key engine.start_s)")
            await self._clock.sleep(HEALTH_CHECK_S)
        await self.init_updates()

    async def ended(self) -> str:
        if self._process is None:
            return "the engine was never started"
        status = await self._process.wait()
        return f"the engine's process ended with status {status}"

    async def stop(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._process = None
