"""The open groups of one partition, and the place from which they could be read again.

Invariant: reading every topic from `checkpoint().low_offsets` on, and passing over `ended_groups`, gives these open
groups again and no other. A group's records therefore hold the low offsets down until it has ended, whether they
counted or not. Ended groups are remembered while their records may be read again, and the newest of them longer, so
that a late record of theirs is known for what it is.
"""

from dataclasses import dataclass, field

from rein.v1 import events_pb2 as ev
from rein_assembler.domain.group import Event, Group, Ignored

#: Ended groups remembered beyond need. More than the groups open at once in one partition: see `_prune`.
ENDED_KEPT = 1024


@dataclass(slots=True)
class _Tracked:
    group: Group
    seen_s: float
    """When its first record was read, monotonic seconds."""
    lowest: dict[str, int] = field(default_factory=dict)
    """First offset per topic."""
    highest: dict[str, int] = field(default_factory=dict)


class Partition:
    """State of one partition between Assigned and Revoked."""

    def __init__(self, number: int, *, checkpoint: ev.AssemblerCheckpoint | None = None) -> None:
        self.number = number
        self._open: dict[str, _Tracked] = {}
        self._restored: set[str] = set(checkpoint.ended_groups) if checkpoint else set()
        self._ended: dict[str, dict[str, int]] = {}
        """Ended by this instance: highest offset per topic."""
        self._num_ended = 0
        self._next: dict[str, int] = dict(checkpoint.low_offsets) if checkpoint else {}
        """Per topic, the offset after the last record read."""
        self.num_read = 0
        """Records read since `checkpoint` was called last."""

    def apply(self, event: Event, *, topic: str, offset: int, now_s: float) -> Ignored | None:
        """Record one event; the reason, if it changed nothing."""
        self.num_read += 1
        self._next[topic] = max(self._next.get(topic, 0), offset + 1)
        name = (event.group if isinstance(event, ev.GroupOpened) else event.identity).group
        if name in self._ended:
            self._ended[name][topic] = max(offset, self._ended[name].get(topic, 0))
            return Ignored.ENDED
        if name in self._restored:
            return Ignored.ENDED
        tracked = self._open.setdefault(name, _Tracked(Group(name), seen_s=now_s))
        tracked.lowest[topic] = min(offset, tracked.lowest.get(topic, offset))
        tracked.highest[topic] = max(offset, tracked.highest.get(topic, offset))
        return tracked.group.apply(event)

    @property
    def num_open(self) -> int:
        return len(self._open)

    def settled(self) -> list[Group]:
        """Groups whose members all have their end, by name."""
        return sorted((each.group for each in self._open.values() if each.group.is_settled), key=lambda g: g.name)

    def end(self, name: str) -> None:
        """The group's end is written with the next checkpoint."""
        self._ended[name] = self._open.pop(name).highest
        self._num_ended += 1

    def forget_unopened(self, *, now_s: float, limit_s: float) -> list[Group]:
        """Groups whose GroupOpened has not come within `limit_s`: forgotten, for the caller to report.

        Should it come after all, the group still ends: its deadline fences every member.
        """
        late = [
            each.group for each in self._open.values() if each.group.opened is None and now_s - each.seen_s > limit_s
        ]
        for group in late:
            del self._open[group.name]
        return late

    def checkpoint(self) -> ev.AssemblerCheckpoint:
        """Where the partition must be read from if this instance ends now."""
        self.num_read = 0
        low = dict(self._next)
        for tracked in self._open.values():
            for topic, offset in tracked.lowest.items():
                low[topic] = min(low[topic], offset)
        self._prune(low)
        ended = sorted(self._restored | set(self._ended))
        return ev.AssemblerCheckpoint(partition=self.number, low_offsets=low, ended_groups=ended)

    def _prune(self, low: dict[str, int]) -> None:
        """Forget the oldest ended groups that cannot be read again.

        Those restored have no known offsets. Once this instance has ended more groups than were open when it began,
        it has read past everything the one before it had read.
        """
        if self._num_ended > ENDED_KEPT:
            self._restored.clear()
        for name in list(self._ended)[: max(0, len(self._ended) - ENDED_KEPT)]:
            if all(offset < low[topic] for topic, offset in self._ended[name].items()):
                del self._ended[name]
