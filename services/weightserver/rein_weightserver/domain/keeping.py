"""Which of a run's versions its nodes should hold, and which may go. Pure."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """A rollback: `version` is wanted for as long as `newest` is the newest."""

    version: int
    newest: int


def wanted(kept: Collection[int], pin: Pin | None) -> int:
    """The version to aim at: the newest, unless a rollback said otherwise and nothing newer came since."""
    newest = max(kept)
    return pin.version if pin and pin.newest == newest and pin.version in kept else newest


def surplus(kept: Collection[int], *, num_keep: int, in_use: Collection[int]) -> list[int]:
    """Versions to remove so that the newest `num_keep` and those in use stay."""
    oldest_first = sorted(kept)
    return [version for version in oldest_first[:-num_keep] if version not in in_use]
