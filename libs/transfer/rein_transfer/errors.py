"""What can go wrong while weights move.

ReinError
├── TransientError
│   └── TransferTransient     the server is away, or the stream broke: try again
│       └── LeftOut               the server ended this subscription: start over, from nothing
└── RejectedError
    └── TransferRejected      these bytes will never do
        ├── FrameDamaged          not a WeightFrame
        ├── ChunkMisplaced        a gap, an overlap, or more bytes than the manifest says
        ├── DigestDiffers         all bytes are here and they are not the manifest's
        ├── NoRoom                the file does not fit
        └── VersionTaken          the server holds other bytes under this version
"""

from rein_bus.errors import RejectedError, TransientError


class TransferTransient(TransientError):
    """May go well on another try."""


class LeftOut(TransferTransient):
    def __init__(self, detail: str) -> None:
        super().__init__("transfer.left_out", detail)


class TransferRejected(RejectedError):
    """Never goes well."""


class FrameDamaged(TransferRejected):
    def __init__(self, reason: str) -> None:
        super().__init__("transfer.frame_damaged", f"a frame is not a rein.v1.WeightFrame ({reason})")


class ChunkMisplaced(TransferRejected):
    def __init__(self, *, offset: int, expected: int, size_bytes: int) -> None:
        super().__init__(
            "transfer.chunk_misplaced",
            f"a chunk at byte {offset} where byte {expected} of {size_bytes} is next; send them in order, once each",
        )


class DigestDiffers(TransferRejected):
    def __init__(self, *, version: int, wanted: str, got: str) -> None:
        super().__init__(
            "transfer.digest_differs",
            f"version {version} arrived with digest {got}, its manifest says {wanted}; send it again",
        )


class NoRoom(TransferRejected):
    def __init__(self, *, place: str, wanted_bytes: int, free_bytes: int) -> None:
        super().__init__(
            "transfer.no_room",
            f"{place} has {free_bytes} bytes free, {wanted_bytes} are needed; free some or use another folder",
        )


class VersionTaken(TransferRejected):
    def __init__(self, *, run: str, version: int, detail: str) -> None:
        super().__init__(
            "transfer.version_taken", detail or f"version {version} of run {run!r} is held with other bytes"
        )
