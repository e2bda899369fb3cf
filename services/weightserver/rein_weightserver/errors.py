"""The weight server's errors.

ReinError
├── TransientError
│   └── NodeLeftOut        the node was too slow, or another took its name  -> ABORTED
└── RejectedError
    ├── (rein_transfer)    FrameDamaged, ChunkMisplaced -> INVALID_ARGUMENT; DigestDiffers -> DATA_LOSS;
    │                      NoRoom -> RESOURCE_EXHAUSTED; VersionTaken -> ALREADY_EXISTS
    ├── PublishUnfit       the stream does not say what it should           -> INVALID_ARGUMENT
    └── VersionMissing     no such version is kept                          -> NOT_FOUND
"""

from rein_bus.errors import RejectedError, TransientError


class NodeLeftOut(TransientError):
    def __init__(self, node: str, detail: str) -> None:
        super().__init__("weights.left_out", f"node {node!r} is left out: {detail}; subscribe again", node=node)


class PublishUnfit(RejectedError):
    def __init__(self, detail: str) -> None:
        super().__init__("weights.publish_unfit", detail)


class VersionMissing(RejectedError):
    def __init__(self, *, run: str, version: int, kept: list[int]) -> None:
        super().__init__(
            "weights.version_missing",
            f"version {version} of run {run!r} is not kept; kept are {kept or 'none'}",
            run=run,
        )
