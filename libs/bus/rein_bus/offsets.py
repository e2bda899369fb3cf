"""How far a partition may be committed while its records finish in any order.

Invariant: `committable` is never above an offset that was begun and not finished, so a crash at any moment makes the
unfinished records come again. Offsets may have gaps (compaction, transaction markers). Pure; knows no client.
"""

import heapq


class OffsetTracker:
    """One partition, from the offset where this member began to read it."""

    def __init__(self, start: int) -> None:
        self._next = start
        self._unfinished: set[int] = set()
        self._by_offset: list[int] = []

    @property
    def next(self) -> int:
        """The offset after the last one begun."""
        return self._next

    @property
    def num_unfinished(self) -> int:
        return len(self._unfinished)

    @property
    def committable(self) -> int:
        """The smallest unfinished offset, or the next one where all are finished."""
        while self._by_offset and self._by_offset[0] not in self._unfinished:
            heapq.heappop(self._by_offset)
        return self._by_offset[0] if self._by_offset else self._next

    def begin(self, offset: int) -> None:
        """The record at `offset` was handed out. Raises ValueError when it was begun before."""
        if offset < self._next:
            raise ValueError(f"offset {offset} was begun before; the next one is {self._next}")
        self._next = offset + 1
        self._unfinished.add(offset)
        heapq.heappush(self._by_offset, offset)

    def finish(self, offset: int) -> None:
        """Its effect is durable. Harmless for an offset that was finished before or never begun here."""
        self._unfinished.discard(offset)
