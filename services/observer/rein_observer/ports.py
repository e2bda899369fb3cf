"""What the observer needs from outside, in its own words."""

from typing import Protocol

from rein_observer.domain.windows import Window


class RecentWindows(Protocol):
    """Figures of the last minutes."""

    def recent(self) -> dict[str, list[tuple[str, Window]]]:
        """Each run's windows, newest first, each with its title."""
