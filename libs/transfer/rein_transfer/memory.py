"""A weight server for one node without a server: for tests of whoever follows weights.

Does what `rein_weightserver` does as one node sees it: the newest version first, a switch once the node has staged it.
Faults are switched on by attribute.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import LeftOut, TransferTransient
from rein_transfer.manifest import Weights, frames_of
from rein_transfer.wire import Chunk, Frame, parse


@dataclass
class Faults:
    """What goes wrong until it is switched off."""

    break_after_chunks: int | None = None
    """The stream breaks after so many chunks of a version."""
    flip_byte: int | None = None
    """This byte of the file arrives changed."""
    refuse_confirms: bool = False
    """Confirmations do not get through."""


class MemoryFeed:
    """Same methods as WeightSubscriber."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.confirmed: list[pb.ConfirmRequest] = []
        self.subscriptions: list[pb.SubscribeRequest] = []
        self._offered: tuple[pb.WeightManifest, Weights] | None = None
        self._num_offers = 0
        self._hangs_up = False
        self._changed = asyncio.Event()

    def offer(self, manifest: pb.WeightManifest, *, weights: Weights) -> None:
        """This is the newest version from now on; offering the same one again sends it again."""
        self._offered = (manifest, weights)
        self._num_offers += 1
        self._wake()

    def leave_out(self) -> None:
        """End the present subscription as the server does with a late node."""
        self._hangs_up = True
        self._wake()

    def states(self, version: int) -> list[str]:
        """What was confirmed about a version, in order."""
        return [
            pb.ConfirmState.Name(request.state).removeprefix("CONFIRM_STATE_").lower()
            for request in self.confirmed
            if request.version == version
        ]

    async def frames(self, request: pb.SubscribeRequest) -> AsyncIterator[Frame]:
        self.subscriptions.append(request)
        num_seen = 0
        while True:
            await self._until_offered(num_seen)
            assert self._offered is not None
            num_seen, (manifest, weights) = self._num_offers, self._offered
            num_confirmed = len(self.confirmed)
            for frame in self._version(manifest, weights=weights):
                yield frame
            if await self._is_staged(manifest, after=num_confirmed, num_seen=num_seen):
                yield pb.WeightSwitch(version=manifest.version, digest=manifest.digest)

    async def confirm(self, request: pb.ConfirmRequest) -> None:
        if self.faults.refuse_confirms:
            raise TransferTransient("transfer.stream_broken", "confirmations are refused (a test's doing)")
        self.confirmed.append(request)
        self._wake()

    def _version(self, manifest: pb.WeightManifest, *, weights: Weights) -> Iterator[Frame]:
        for num_chunks, encoded in enumerate(frames_of(manifest, weights=weights), start=-1):
            if num_chunks == self.faults.break_after_chunks:
                raise TransferTransient("transfer.stream_broken", "the stream broke (a test's doing)")
            frame = parse(encoded)
            yield self._damaged(frame) if isinstance(frame, Chunk) else frame

    def _damaged(self, chunk: Chunk) -> Chunk:
        place = -1 if self.faults.flip_byte is None else self.faults.flip_byte - chunk.offset
        if not 0 <= place < chunk.data.nbytes:
            return chunk
        data = bytearray(chunk.data)
        data[place] ^= 0xFF
        return Chunk(chunk.offset, memoryview(data))

    async def _until_offered(self, num_seen: int) -> None:
        while self._num_offers == num_seen:
            await self._wait()

    async def _is_staged(self, manifest: pb.WeightManifest, *, after: int, num_seen: int) -> bool:
        """Wait until the node has staged it or a newer one is offered."""
        while self._num_offers == num_seen:
            news = self.confirmed[after:]
            if any(each.digest == manifest.digest and each.state == pb.CONFIRM_STATE_STAGED for each in news):
                return True
            await self._wait()
        return False

    async def _wait(self) -> None:
        if self._hangs_up:
            self._hangs_up = False
            raise LeftOut("left out (a test's doing)")
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
