"""Frames by hand and by protobuf are the same bytes and mean the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import FrameDamaged
from rein_transfer.wire import Chunk, chunk_frame, manifest_frame, parse, switch_frame

OFFSETS = st.integers(min_value=0, max_value=2**64 - 1)


@settings(deadline=None)
@given(offset=OFFSETS, data=st.binary(max_size=400))
def test_a_chunk_framed_by_hand_is_read_by_protobuf(offset: int, data: bytes) -> None:
    read = pb.WeightFrame.FromString(chunk_frame(data, offset=offset))
    assert read == pb.WeightFrame(chunk=pb.WeightChunk(offset=offset, data=data))


@settings(deadline=None)
@given(offset=OFFSETS, data=st.binary(max_size=400))
def test_a_chunk_written_by_protobuf_is_parsed_by_hand(offset: int, data: bytes) -> None:
    chunk = parse(pb.WeightFrame(chunk=pb.WeightChunk(offset=offset, data=data)).SerializeToString())
    assert isinstance(chunk, Chunk)
    assert (chunk.offset, bytes(chunk.data)) == (offset, data)


@settings(deadline=None)
@given(data=st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    try:
        frame = parse(data)
    except FrameDamaged:
        return
    if isinstance(frame, Chunk):
        ordinary = pb.WeightFrame.FromString(data).chunk
        assert (frame.offset, bytes(frame.data)) == (ordinary.offset, ordinary.data)


def test_parsing_a_large_chunk_copies_nothing() -> None:
    frame = chunk_frame(bytes(1 << 20), offset=1 << 40)
    chunk = parse(frame)
    assert isinstance(chunk, Chunk)
    assert chunk.data.obj is frame


def test_fields_in_another_order_are_understood() -> None:
    inner = pb.WeightChunk(data=b"abc").SerializeToString() + pb.WeightChunk(offset=7).SerializeToString()
    chunk = parse(bytes([pb.WeightFrame.CHUNK_FIELD_NUMBER << 3 | 2, len(inner)]) + inner)
    assert isinstance(chunk, Chunk)
    assert (chunk.offset, bytes(chunk.data)) == (7, b"abc")


def test_manifest_and_switch_come_back_as_messages() -> None:
    manifest = pb.WeightManifest(run="r", version=3, probe=pb.Probe(token_ids=[1, 2], logprobs=[-0.5]))
    assert parse(manifest_frame(manifest)) == manifest
    assert parse(switch_frame(version=3, digest="d")) == pb.WeightSwitch(version=3, digest="d")


@pytest.mark.parametrize("frame", [b"", b"\xff\xff\xff", b"\x12\x7f"])
def test_what_is_no_frame_is_named(frame: bytes) -> None:
    with pytest.raises(FrameDamaged):
        parse(frame)
