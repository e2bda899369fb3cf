"""Who owns an attempt, as the log says: the first TAKEN in it. And which attempts are fenced.

A request may be delivered twice (a runner dies between its lease and its commit; a partition moves). All leases of an
attempt are in one partition, so every runner sees the same first one. What is remembered is bounded: the oldest goes.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from rein_contracts.ids import AttemptId, RolloutId

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_REMEMBERED = 200_000


class _Memory(Generic[K, V]):
    """A mapping that forgets what was put in first."""

    def __init__(self, most: int) -> None:
        self._items: OrderedDict[K, V] = OrderedDict()
        self._most = most

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        if len(self._items) > self._most:
            self._items.popitem(last=False)


class Leases:
    """A fold over RolloutLeased and RolloutFenced."""

    def __init__(self, *, most_remembered: int = MOST_REMEMBERED) -> None:
        self._takers: _Memory[AttemptId, tuple[int, int]] = _Memory(most_remembered)
        self._fenced: _Memory[RolloutId, int] = _Memory(most_remembered)

    def taken(self, attempt: AttemptId, *, partition: int, offset: int) -> None:
        """A TAKEN was read at this place."""
        if self._takers.get(attempt) is None:
            self._takers.put(attempt, (partition, offset))

    def fenced(self, rollout: RolloutId, *, attempt: int | None) -> None:
        """Attempts up to `attempt` are over; None = all of them."""
        newest = 1 << 32 if attempt is None else attempt
        self._fenced.put(rollout, max(newest, self._fenced.get(rollout) or 0))

    def is_taken(self, attempt: AttemptId) -> bool:
        return self._takers.get(attempt) is not None

    def is_owner(self, attempt: AttemptId, *, partition: int, offset: int) -> bool:
        """Whether the TAKEN at this place is the first one."""
        return self._takers.get(attempt) == (partition, offset)

    def is_fenced(self, attempt: AttemptId) -> bool:
        return attempt.attempt <= (self._fenced.get(attempt.rollout) or 0)
