"""The segments of a group as one safetensors blob, and back.

Arrays (docs/architecture.md): `token_ids` u32[N], `is_trainable` u8[N]; `sampled_at`, `logprobs`, `versions` [S], one
entry per trainable token in order of places; `segment_start` u32[R+1], `segment_member` u32[R]. Rows stand in order of
(member, segment). Equal segments give equal bytes, so a group that is assembled again has the same digest. Segments
without a trainable token are left out: nothing could be learnt from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rein_tokens.arrays import Arrays, Dtypes, Floats, Ids, Mask, from_bytes, joined, to_bytes
from rein_tokens.errors import BytesDamaged
from rein_tokens.segments import Segment

_DTYPES: Dtypes = {
    "token_ids": np.dtype(np.uint32),
    "is_trainable": np.dtype(np.uint8),
    "sampled_at": np.dtype(np.uint32),
    "logprobs": np.dtype(np.float32),
    "versions": np.dtype(np.uint32),
    "segment_start": np.dtype(np.uint32),
    "segment_member": np.dtype(np.uint32),
}


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One token sequence of one member."""

    member: int
    token_ids: Ids
    is_trainable: Mask
    """Parallel to `token_ids`."""
    sampled_at: Ids
    """Places of the trainable tokens in `token_ids`, ascending, never 0."""
    logprobs: Floats
    """As recorded; parallel to `sampled_at`."""
    versions: Ids
    """Parallel to `sampled_at`."""


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """All rows of a group, in order of (member, segment)."""

    rows: tuple[Row, ...]


def pack(segments: Mapping[int, Sequence[Segment]]) -> bytes:
    """Bytes of the segments, by member."""
    rows = [
        (member, segment) for member in sorted(segments) for segment in segments[member] if segment.num_trainable > 0
    ]
    starts = np.cumsum([0, *(len(segment.token_ids) for _, segment in rows)])
    places = [segment.sampled_at + start for (_, segment), start in zip(rows, starts[:-1], strict=True)]
    return to_bytes(
        {
            "token_ids": joined([segment.token_ids for _, segment in rows], dtype=np.uint32),
            "is_trainable": joined([segment.is_trainable for _, segment in rows], dtype=np.bool_).astype(np.uint8),
            "sampled_at": joined(places, dtype=np.uint32),
            "logprobs": joined([segment.logprobs for _, segment in rows], dtype=np.float32),
            "versions": joined([segment.versions for _, segment in rows], dtype=np.uint32),
            "segment_start": starts.astype(np.uint32),
            "segment_member": np.array([member for member, _ in rows], dtype=np.uint32),
        }
    )


def unpack(data: bytes) -> PackedGroup:
    """Raises BytesDamaged."""
    arrays = from_bytes(data, dtypes=_DTYPES)
    _check(arrays)
    return PackedGroup(tuple(_rows(arrays)))


def _check(arrays: Arrays) -> None:
    num_tokens, num_sampled = len(arrays["token_ids"]), len(arrays["sampled_at"])
    starts = arrays["segment_start"].astype(np.int64)
    for name, length in (
        ("is_trainable", num_tokens),
        ("logprobs", num_sampled),
        ("versions", num_sampled),
        ("segment_start", len(arrays["segment_member"]) + 1),
    ):
        if len(arrays[name]) != length:
            raise BytesDamaged(f"{name} has {len(arrays[name])} entries, not {length}")
    if starts[0] != 0 or starts[-1] != num_tokens or (np.diff(starts) <= 0).any():
        raise BytesDamaged(f"segment_start does not cut {num_tokens} tokens into segments")
    if not np.array_equal(np.flatnonzero(arrays["is_trainable"]), arrays["sampled_at"]):
        raise BytesDamaged("sampled_at does not name the places where is_trainable is set")
    if np.isin(starts[:-1], arrays["sampled_at"]).any():
        raise BytesDamaged("a segment begins with a trainable token")


def _rows(arrays: Arrays) -> Iterator[Row]:
    starts = arrays["segment_start"].astype(np.int64)
    bounds = np.searchsorted(arrays["sampled_at"], starts)
    for number, member in enumerate(arrays["segment_member"].astype(np.int64)):
        tokens = slice(starts[number], starts[number + 1])
        samples = slice(bounds[number], bounds[number + 1])
        yield Row(
            member=int(member),
            token_ids=arrays["token_ids"][tokens].astype(np.uint32),
            is_trainable=arrays["is_trainable"][tokens].astype(np.bool_),
            sampled_at=(arrays["sampled_at"][samples].astype(np.int64) - starts[number]).astype(np.uint32),
            logprobs=arrays["logprobs"][samples].astype(np.float32),
            versions=arrays["versions"][samples].astype(np.uint32),
        )
