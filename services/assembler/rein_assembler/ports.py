"""What the assembler needs from outside besides the bus, in its own words."""

from typing import Protocol

from rein.v1 import identity_pb2 as pb
from rein_tokens import TurnArrays


class Arrays(Protocol):
    """Where big arrays lie."""

    async def put(self, data: bytes) -> pb.BlobRef:
        """Store durably; the same bytes give the same reference. Waits out a store that is away for a while."""

    async def of_turn(self, ref: pb.BlobRef) -> TurnArrays | None:
        """The arrays of a large turn; None = missing or damaged, for good."""
