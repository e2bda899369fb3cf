"""What the gateway needs from outside, in its own words."""

from collections.abc import Sequence
from typing import Protocol

from rein.v1 import identity_pb2 as pb
from rein_dialects.neutral import JsonObject, Message
from rein_gateway.domain.generation import Generation
from rein_gateway.domain.session import Ids


class Engine(Protocol):
    """Token in, token out."""

    async def generate(
        self, url: str, *, token_ids: Ids, sampling: pb.Sampling, stop_id: int, cache_salt: str
    ) -> Generation:
        """Sample once. Cancelling the call ends the generation. Raises EngineAway, CallRefused, PromptTooLong."""


class Rendering(Protocol):
    """A model's template and tokenizer; see rein_dialects.rendering.Renderer."""

    digest: str
    end_of_turn_id: int
    opens_reasoning: bool

    def opening(self, messages: Sequence[Message], *, tools: Sequence[JsonObject]) -> list[int]:
        """Raises RequestRefused."""

    def continuation(
        self, new: Sequence[Message], *, tools: Sequence[JsonObject], has_ended: bool
    ) -> list[int] | None: ...

    def read(self, token_ids: Sequence[int]) -> str: ...


class Blobs(Protocol):
    """Where arrays go that are too large for an event."""

    async def put(self, data: bytes) -> pb.BlobRef: ...


class Listener(Protocol):
    """The harnesses' side."""

    async def start(self) -> None:
        """Answer requests from now on."""

    async def finish(self) -> None:
        """Turn new model calls away; return once those under way are answered."""
