"""What the weight server needs from outside, in its own words."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from rein.v1 import weights_pb2 as pb
from rein_transfer.wire import Chunk
from rein_weightserver.domain.keeping import Pin

Versions = Mapping[int, pb.WeightManifest]


class Arrival(Protocol):
    """Bytes of a version coming in."""

    def write(self, chunk: Chunk) -> None:
        """Raises ChunkMisplaced."""


class VersionStore(Protocol):
    """Versions that survive the process. What it lists is whole and verified."""

    def runs(self) -> list[str]: ...

    def versions(self, run: str) -> Versions:
        """Kept versions by number."""

    def pin(self, run: str) -> Pin | None: ...

    def newest_run(self) -> str:
        """Run that published last; "" = none ever."""

    def arrival(self, manifest: pb.WeightManifest) -> AbstractContextManager[Arrival]:
        """Room for a version. Raises NoRoom. What is not kept before the context ends is removed."""

    def keep(self, arrival: Arrival) -> None:
        """Verify and make durable; blocks. Raises DigestDiffers."""

    def frames(self, manifest: pb.WeightManifest) -> Iterator[bytes]:
        """A kept version as it goes to nodes."""

    def write_pin(self, run: str, pin: Pin) -> None: ...

    def write_newest_run(self, run: str) -> None: ...

    def forget(self, run: str, version: int) -> None: ...
