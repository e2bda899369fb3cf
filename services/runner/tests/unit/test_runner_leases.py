"""Who owns an attempt, and which are over."""

from hypothesis import given
from hypothesis import strategies as st

from rein_contracts.ids import AttemptId, RolloutId
from rein_runner.domain.leases import Leases

FIRST = AttemptId("r.g0", 1, 1)
SECOND = AttemptId("r.g0", 1, 2)


def test_the_first_taker_in_the_log_owns_the_attempt() -> None:
    leases = Leases()
    leases.taken(FIRST, partition=2, offset=5)
    leases.taken(FIRST, partition=2, offset=9)
    assert leases.is_owner(FIRST, partition=2, offset=5)
    assert not leases.is_owner(FIRST, partition=2, offset=9)


@given(st.permutations([3, 5, 9]), st.integers(1, 3))
def test_redelivery_changes_no_owner(offsets: list[int], times: int) -> None:
    leases = Leases()
    for offset in sorted(offsets) * times:
        leases.taken(FIRST, partition=0, offset=offset)
    assert [offset for offset in offsets if leases.is_owner(FIRST, partition=0, offset=offset)] == [3]


def test_a_fence_ends_an_attempt_and_those_before_it() -> None:
    leases = Leases()
    leases.fenced(RolloutId("r.g0", 1), attempt=1)
    assert leases.is_fenced(FIRST)
    assert not leases.is_fenced(SECOND)


def test_a_final_fence_ends_all_attempts_whatever_comes_after() -> None:
    leases = Leases()
    leases.fenced(RolloutId("r.g0", 1), attempt=None)
    leases.fenced(RolloutId("r.g0", 1), attempt=1)
    assert leases.is_fenced(SECOND)


def test_the_oldest_is_forgotten_first() -> None:
    leases = Leases(most_remembered=2)
    attempts = [AttemptId("r.g0", member, 1) for member in range(3)]
    for attempt in attempts:
        leases.taken(attempt, partition=0, offset=0)
    assert [leases.is_taken(attempt) for attempt in attempts] == [False, True, True]
