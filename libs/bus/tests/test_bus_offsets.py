"""The offset tracker under any order of completion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein_bus.offsets import OffsetTracker


@given(
    start=st.integers(0, 1000),
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    choices=st.lists(st.integers(0, 10_000), max_size=120),
)
def test_nothing_is_committable_past_an_unfinished_record(start: int, gaps: list[int], choices: list[int]) -> None:
    """`choices` decide at each moment whether a record is handed out, or which of those in hand is finished."""
    tracker = OffsetTracker(start)
    unfinished: list[int] = []
    last_committable = tracker.committable
    offset = start
    for choice in choices:
        if gaps and (choice % 2 == 0 or not unfinished):
            offset += gaps.pop()
            tracker.begin(offset)
            unfinished.append(offset)
            offset += 1
        elif unfinished:
            tracker.finish(unfinished.pop(choice % len(unfinished)))
        assert all(tracker.committable <= one for one in unfinished)
        assert tracker.committable >= last_committable
        assert tracker.num_unfinished == len(unfinished)
        last_committable = tracker.committable
    for one in unfinished:
        tracker.finish(one)
    assert tracker.committable == tracker.next


def test_finishing_twice_or_what_was_never_begun_is_harmless() -> None:
    tracker = OffsetTracker(5)
    tracker.begin(5)
    tracker.begin(6)
    tracker.finish(6)
    tracker.finish(6)
    tracker.finish(99)
    assert tracker.committable == 5
    tracker.finish(5)
    assert tracker.committable == 7


def test_a_record_is_begun_once() -> None:
    tracker = OffsetTracker(0)
    tracker.begin(3)
    with pytest.raises(ValueError, match="begun before"):
        tracker.begin(3)
