"""A file appears whole and verified, or not at all."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import ChunkMisplaced, DigestDiffers, NoRoom
from rein_transfer.landing import Landing, write_durably
from rein_transfer.manifest import completed, digest_of, frames_of
from rein_transfer.wire import Chunk, parse


def land(folder: Path, *, manifest: pb.WeightManifest, chunks: Iterable[Chunk]) -> None:
    with Landing(folder / "1", manifest=manifest) as landing:
        for chunk in chunks:
            landing.write(chunk)
        landing.finish(is_durable=True)


CONTENT = bytes(range(256)) * 40


def manifest_of(content: bytes, *, chunk_bytes: int = 1000) -> pb.WeightManifest:
    return completed(pb.WeightManifest(run="r", version=1), weights=content, chunk_bytes=chunk_bytes)


def chunks_of(manifest: pb.WeightManifest, content: bytes) -> list[Chunk]:
    return [frame for each in frames_of(manifest, weights=content) if isinstance(frame := parse(each), Chunk)]


@settings(deadline=None, max_examples=40)
@given(content=st.binary(min_size=1, max_size=3000), chunk_bytes=st.integers(min_value=1, max_value=4000))
def test_whatever_the_chunk_size_the_same_bytes_land(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, chunk_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("landing")
    manifest = manifest_of(content, chunk_bytes=chunk_bytes)
    with Landing(folder / "1", manifest=manifest) as landing:
        for chunk in chunks_of(manifest, content):
            landing.write(chunk)
        assert landing.is_complete
        landing.finish(is_durable=False)
    assert [path.read_bytes() for path in folder.iterdir()] == [content]


def test_a_digest_is_the_same_for_a_file_and_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(CONTENT)
    assert digest_of(path) == digest_of(CONTENT) == manifest_of(CONTENT).digest


def test_one_changed_byte_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    manifest = manifest_of(CONTENT)
    with pytest.raises(DigestDiffers):
        land(tmp_path, manifest=manifest, chunks=chunks_of(manifest, b"x" + CONTENT[1:]))
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_ends_early_is_refused(tmp_path: Path) -> None:
    manifest = manifest_of(CONTENT)
    with pytest.raises(DigestDiffers):
        land(tmp_path, manifest=manifest, chunks=chunks_of(manifest, CONTENT)[:1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", [(0, 0), (1,), (0, 2)], ids=["twice", "late", "gap"])
def test_chunks_out_of_place_are_refused(tmp_path: Path, order: tuple[int, ...]) -> None:
    manifest = manifest_of(CONTENT)
    chunks = chunks_of(manifest, CONTENT)
    with pytest.raises(ChunkMisplaced):
        land(tmp_path, manifest=manifest, chunks=[chunks[index] for index in order])


def test_more_bytes_than_announced_are_refused(tmp_path: Path) -> None:
    manifest = manifest_of(CONTENT)
    manifest.size_bytes = 500
    with pytest.raises(ChunkMisplaced):
        land(tmp_path, manifest=manifest, chunks=chunks_of(manifest, CONTENT))


def test_a_version_larger_than_the_disk_is_refused_before_any_byte(tmp_path: Path) -> None:
    manifest = manifest_of(CONTENT)
    manifest.size_bytes = 1 << 60
    with pytest.raises(NoRoom, match="free"):
        Landing(tmp_path / "1", manifest=manifest)
    assert list(tmp_path.iterdir()) == []


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "pin"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"two"]
