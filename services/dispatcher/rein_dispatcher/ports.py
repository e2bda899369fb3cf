"""What the dispatcher needs from outside, in its own words."""

from collections.abc import Collection
from typing import Protocol

from rein_dispatcher.domain.schedule import Tasks


class Catalog(Protocol):
    """Task sets and harnesses this deployment has."""

    def tasks(self, task_set: str) -> Tasks:
        """Tasks of the set in that folder. Raises SpecRejected naming the folder or the task that is wrong."""

    def harnesses(self) -> Collection[str]:
        """Names of the harnesses a run may use."""
