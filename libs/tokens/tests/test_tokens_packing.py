"""Segments survive the trip through bytes, and bytes that cannot be right are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from rein_tokens import BytesDamaged, Segment, pack, unpack


def segment(ids: list[int], mask: list[bool]) -> Segment:
    places = np.flatnonzero(np.array(mask, dtype=bool)).astype(np.uint32)
    return Segment(
        turns=(0,),
        token_ids=np.array(ids, dtype=np.uint32),
        is_trainable=np.array(mask, dtype=np.bool_),
        sampled_at=places,
        logprobs=-places.astype(np.float32),
        versions=places + np.uint32(1),
    )


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    mask = [False, *draw(st.lists(st.booleans(), max_size=8))]
    return segment(draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(mask), max_size=len(mask))), mask)


@given(st.dictionaries(st.integers(0, 9), st.lists(segments(), max_size=4), max_size=4))
def test_rows_come_back_in_order_of_member_and_segment(group: dict[int, list[Segment]]) -> None:
    data = pack(group)
    assert data == pack(dict(reversed(group.items())))
    rows = unpack(data).rows
    wanted = [(member, each) for member in sorted(group) for each in group[member] if each.num_trainable]
    assert [row.member for row in rows] == [member for member, _ in wanted]
    for row, (_, each) in zip(rows, wanted, strict=True):
        for name in ("token_ids", "is_trainable", "sampled_at", "logprobs", "versions"):
            assert getattr(row, name).tolist() == getattr(each, name).tolist()
            assert getattr(row, name).dtype == getattr(each, name).dtype


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("logprobs", np.array([-1.0], dtype=np.float32)),
        ("versions", np.array([1, 1, 1], dtype=np.uint32)),
        ("is_trainable", np.array([0, 1, 1, 1], dtype=np.uint8)),
        ("sampled_at", np.array([1, 3], dtype=np.uint32)),
        ("segment_start", np.array([0, 5], dtype=np.uint32)),
        ("segment_start", np.array([0, 2, 4], dtype=np.uint32)),
        ("token_ids", np.array([1, 2, 3, 4], dtype=np.int64)),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(name: str, values: np.ndarray) -> None:
    arrays = load(pack({0: [segment([1, 2, 3, 4], [False, True, True, False])]}))
    arrays[name] = values
    with pytest.raises(BytesDamaged, match=name):
        unpack(save(arrays))


def test_a_row_that_begins_with_a_trainable_token_is_refused() -> None:
    with pytest.raises(BytesDamaged, match="begins"):
        unpack(pack({0: [segment([1, 2], [True, False])]}))
