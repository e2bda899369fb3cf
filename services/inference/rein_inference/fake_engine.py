"""An engine without a model: "generates" from the bytes it was given, so that wrong bytes show. With fault switches."""

import asyncio
import zlib
from collections.abc import Sequence
from pathlib import Path

from rein_inference.errors import EngineLost, EngineRefused
from rein_inference.ports import Load


def logprobs_under(weights: bytes, token_ids: Sequence[int]) -> list[float]:
    """What the fake engine says of token_ids[1:] under these weights."""
    return [-(zlib.crc32(weights + bytes([token % 256])) % 1000) / 100.0 for token in token_ids[1:]]


class FakeEngine:
    """Implements ports.Engine."""

    def __init__(self) -> None:
        self.weights = b"base"
        self.num_starts = 0
        self.updates: list[int] = []
        self.busy = Load()
        self.fail_starts = 0
        """So many starts fail."""
        self.fail_update = False
        self.ignore_update = False
        """The update says yes and changes nothing."""
        self._end = asyncio.Event()
        self._is_up = False

    async def start(self) -> None:
        self.num_starts += 1
        self._end = asyncio.Event()
        if self.fail_starts:
            self.fail_starts -= 1
            raise EngineLost("it ended while starting (a test's doing)")
        self.weights, self._is_up = b"base", True

    def die(self) -> None:
        self._is_up = False
        self._end.set()

    async def ended(self) -> str:
        await self._end.wait()
        return "the engine's process ended with status -9"

    async def stop(self) -> None:
        self.die()

    async def update(self, path: Path, *, version: int) -> None:
        self._check_up("update")
        if self.fail_update:
            raise EngineRefused("/update_weights", "status 500 (a test's doing)")
        self.updates.append(version)
        if not self.ignore_update:
            self.weights = await asyncio.to_thread(path.read_bytes)

    async def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        self._check_up("generate")
        return logprobs_under(self.weights, token_ids)

    async def load(self) -> Load:
        self._check_up("metrics")
        return self.busy

    def _check_up(self, call: str) -> None:
        if not self._is_up:
            raise EngineRefused(call, "connection refused (a test's doing)")
