"""Arrays in the blob store, with patience: a store that is away is waited for within a bound, then it is an error."""

import logging

from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobDamaged, BlobMissing, BlobStore
from rein_blobs.patience import patiently
from rein_service.clock import Clock
from rein_tokens import BytesDamaged, TurnArrays, unspill

log = logging.getLogger(__name__)


class BlobArrays:
    """See `ports.Arrays`."""

    def __init__(self, store: BlobStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def put(self, data: bytes) -> pb.BlobRef:
        return await patiently(lambda: self._store.put(data), sleep=self._clock.sleep)

    async def of_turn(self, ref: pb.BlobRef) -> TurnArrays | None:
        try:
            return unspill(await patiently(lambda: self._store.get(ref), sleep=self._clock.sleep))
        except (BlobMissing, BlobDamaged, BytesDamaged) as error:
            log.warning("turn.arrays_unreadable", extra={"sha256": ref.sha256, "reason": str(error)})
            return None
