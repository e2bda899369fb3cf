"""Which version is wanted, which go."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rein_weightserver.domain.keeping import Pin, surplus, wanted

VERSIONS = st.sets(st.integers(min_value=1, max_value=50), min_size=1)


@settings(deadline=None)
@given(kept=VERSIONS)
def test_the_newest_is_wanted_unless_rolled_back(kept: set[int]) -> None:
    assert wanted(kept, None) == max(kept)
    oldest = min(kept)
    assert wanted(kept, Pin(version=oldest, newest=max(kept))) == oldest
    assert wanted(kept | {99}, Pin(version=oldest, newest=max(kept))) == 99
    assert wanted(kept, Pin(version=60, newest=max(kept))) == max(kept)


@settings(deadline=None)
@given(kept=VERSIONS, num_keep=st.integers(min_value=1, max_value=9), data=st.data())
def test_the_newest_and_those_in_use_stay(kept: set[int], num_keep: int, data: st.DataObject) -> None:
    in_use = data.draw(st.sets(st.sampled_from(sorted(kept))))
    left = kept - set(surplus(kept, num_keep=num_keep, in_use=in_use))
    assert left >= in_use | set(sorted(kept)[-num_keep:])
    assert len(left) <= num_keep + len(in_use)
