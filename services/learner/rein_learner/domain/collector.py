"""Groups of one run on their way into steps.

The batch of step t is the first `groups_per_step` READY groups labelled t, by number: it does not depend on the order
in which they came. Invariant: reading every partition from `offsets()` on gives all groups that steps after the last
finished one need; what belongs to finished steps is passed over by its label, so nothing else must be remembered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rein.v1 import events_pb2 as ev


class Ignored(Enum):
    """Why a group is not held."""

    OTHER_RUN = "other_run"
    NOT_READY = "not_ready"
    """Dropped, or an evaluation."""
    FINISHED = "finished"
    """Of a step that is finished: read again after a restart, or superfluous."""
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class _Held:
    event: ev.GroupAssembled
    partition: int
    offset: int


class Collector:
    """Between the topic and the steps of one run."""

    def __init__(self, *, run: str, groups_per_step: int, finished_step: int, offsets: Mapping[int, int]) -> None:
        self._run = run
        self._groups_per_step = groups_per_step
        self._finished_step = finished_step
        self._next = dict(offsets)
        self._held: dict[str, _Held] = {}

    def apply(self, event: ev.GroupAssembled, *, partition: int, offset: int) -> Ignored | None:
        """Take note of one record; the reason, if it is not held."""
        self._next[partition] = offset + 1
        name = event.group.group
        if event.group.run != self._run:
            return Ignored.OTHER_RUN
        if event.state != ev.GROUP_STATE_READY:
            return Ignored.NOT_READY
        if event.step <= self._finished_step:
            return Ignored.FINISHED
        if name in self._held:
            return Ignored.DUPLICATE
        self._held[name] = _Held(event, partition, offset)
        return None

    def batch(self, step: int) -> list[ev.GroupAssembled] | None:
        """The groups of `step`, ordered by number; None = not all are here yet."""
        labelled = [held.event for held in self._held.values() if held.event.step == step]
        if len(labelled) < self._groups_per_step:
            return None
        return sorted(labelled, key=lambda event: _number(event.group.group))[: self._groups_per_step]

    def finish(self, step: int) -> list[str]:
        """The step is finished; names of groups held for it that it did not use, which the caller reports."""
        used = {event.group.group for event in self.batch(step) or ()}
        over = [name for name, held in self._held.items() if held.event.step <= step]
        self._held = {name: held for name, held in self._held.items() if held.event.step > step}
        self._finished_step = step
        return sorted(set(over) - used)

    def offsets(self) -> dict[int, int]:
        """First offset per partition that is still needed."""
        low = dict(self._next)
        for held in self._held.values():
            low[held.partition] = min(low[held.partition], held.offset)
        return low

    @property
    def num_held(self) -> int:
        return len(self._held)


def _number(group: str) -> int:
    return int(group.rsplit(".", 1)[1].lstrip("g"))
