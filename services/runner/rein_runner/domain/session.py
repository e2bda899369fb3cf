"""What becomes of an attempt's conversation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """What the gateway says about an attempt that is over."""

    num_turns: int
    limit: str | None
    """Which limit it reached: "turns", "tokens"; None = none."""
