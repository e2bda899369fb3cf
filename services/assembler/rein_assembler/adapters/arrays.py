"""Arrays in the blob store, with patience: a store that is away is waited for within a bound, then it is an error."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobDamaged, BlobMissing, BlobStore, BlobUnavailable
from rein_service.clock import Clock
from rein_tokens import BytesDamaged, TurnArrays, unspill

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)

T = TypeVar("T")

log = logging.getLogger(__name__)


class BlobArrays:
    """See `ports.Arrays`."""

    def __init__(self, store: BlobStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def put(self, data: bytes) -> pb.BlobRef:
        return await self._patiently(lambda: self._store.put(data))

    async def of_turn(self, ref: pb.BlobRef) -> TurnArrays | None:
        try:
            return unspill(await self._patiently(lambda: self._store.get(ref)))
        except (BlobMissing, BlobDamaged, BytesDamaged) as error:
            log.warning("turn.arrays_unreadable", extra={"sha256": ref.sha256, "reason": str(error)})
            return None

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        for pause_s in PAUSES_S:
            try:
                return await ask()
            except BlobUnavailable as error:
                log.warning("blobs.retried", extra={"pause_s": pause_s, "reason": error.detail})
                await self._clock.sleep(pause_s)
        return await ask()
