"""What the gateway needs from outside, in its own words."""

from collections.abc import Sequence
from typing import Protocol

from rein.v1 import identity_pb2 as pb
from rein_dialects.neutral import JsonObject, Message
from rein_gateway.domain.generation import Generation


class Engine(Protocol):
    """Token in, token out."""

    async def generate(
        self, url: str, *, token_ids: Sequence[int], sampling: pb.Sampling, cache_salt: str
    ) -> Generation:
        """Sample once. Cancelling the call ends the generation. Raises CallDelayed when the engine cannot be had."""


class Rendering(Protocol):
    """A model's template and tokenizer; see rein_dialects.rendering.Renderer."""

    digest: str
    end_of_turn_id: int | None

    def opening(self, messages: Sequence[Message], *, tools: Sequence[JsonObject]) -> list[int]: ...

    def continuation(
        self, new: Sequence[Message], *, tools: Sequence[JsonObject], has_ended: bool
    ) -> list[int] | None: ...

    def read(self, token_ids: Sequence[int]) -> str: ...
