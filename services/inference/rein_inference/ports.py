"""What the node needs from outside, in its own words."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rein.v1 import weights_pb2 as pb
from rein_transfer.wire import Chunk, Frame


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine is busy with."""

    num_running: int = 0
    num_waiting: int = 0


class Engine(Protocol):
    """One engine process and its control calls."""

    async def start(self) -> None:
        """Start a fresh process and wait until it answers. Raises EngineLost."""

    async def ended(self) -> str:
        """Wait for the process to end; how it ended."""

    async def stop(self) -> None:
        """End the process and all it started. Safe at any time."""

    async def update(self, path: Path, *, version: int) -> None:
        """Put the file's weights in place; requests in hand go on. Raises EngineRefused: its state is in doubt then."""

    async def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Of token_ids[1:], nats. Raises EngineRefused."""

    async def load(self) -> Load:
        """Raises EngineRefused."""


class WeightFeed(Protocol):
    """The weight server (rein_transfer.subscriber)."""

    def frames(self, request: pb.SubscribeRequest) -> AsyncIterator[Frame]:
        """Raises TransferTransient when the stream ends, LeftOut when the server ended it."""

    async def confirm(self, request: pb.ConfirmRequest) -> None:
        """Raises TransferTransient."""


class Arrival(Protocol):
    """A version on its way into memory (rein_transfer.landing)."""

    path: Path

    @property
    def is_complete(self) -> bool: ...

    def write(self, chunk: Chunk) -> None:
        """Raises ChunkMisplaced."""

    def finish(self, *, is_durable: bool) -> None:
        """Raises DigestDiffers."""

    def discard(self) -> None: ...


class Memory(Protocol):
    """Where versions lie between arrival and switch."""

    def arrival(self, manifest: pb.WeightManifest) -> Arrival:
        """Raises NoRoom."""

    def clear(self) -> None:
        """Remove every file of this node."""
