"""Groups' arrays from the blob store, with patience."""

import logging

from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobDamaged, BlobMissing, BlobStore
from rein_blobs.patience import patiently
from rein_service.clock import Clock
from rein_tokens import BytesDamaged, PackedGroup, unpack

log = logging.getLogger(__name__)


class BlobArrays:
    """See `ports.Arrays`."""

    def __init__(self, store: BlobStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def of_group(self, ref: pb.BlobRef) -> PackedGroup | None:
        try:
            return unpack(await patiently(lambda: self._store.get(ref), sleep=self._clock.sleep))
        except (BlobMissing, BlobDamaged, BytesDamaged) as error:
            log.warning("group.unreadable", extra={"sha256": ref.sha256, "reason": str(error)})
            return None
