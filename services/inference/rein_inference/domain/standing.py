"""Whether a node may take training traffic, and under which version.

Fenced until a version is confirmed; fenced again by any doubt. Only `confirm` makes it ready, and never with version 0.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """What the engine serves."""

    run: str
    version: int
    digest: str


NONE = Weights("", 0, "")


@dataclass(frozen=True, slots=True)
class Fence:
    """Why the node takes no training traffic."""

    code: str
    detail: str


class Standing:
    """The node's present state."""

    def __init__(self, *, on_change: Callable[[], None] = lambda: None) -> None:
        self.weights = NONE
        """Confirmed weights; NONE = base weights, or nobody knows."""
        self.fence: Fence | None = Fence("engine.starting", "the engine is starting")
        self._on_change = on_change

    @property
    def is_ready(self) -> bool:
        return self.fence is None

    def hold(self, code: str, detail: str) -> None:
        """Fence; the engine still serves the weights it had, or those it is being given."""
        self._set(self.weights, fence=Fence(code, detail))

    def forget(self, code: str, detail: str) -> None:
        """Fence; what the engine serves is unknown, or the base weights."""
        self._set(NONE, fence=Fence(code, detail))

    def confirm(self, weights: Weights) -> None:
        """The engine serves these: the probe agreed."""
        if weights.version < 1:
            raise ValueError("version 0 never serves training")
        self._set(weights, fence=None)

    def _set(self, weights: Weights, *, fence: Fence | None) -> None:
        if (weights, fence) != (self.weights, self.fence):
            self.weights, self.fence = weights, fence
            self._on_change()
