"""The blob store on a folder and in memory: same answers, whole writes, verified reads."""

import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobDamaged, BlobMissing, BlobStore, BlobUnavailable


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "blobs") if request.param == "folder" else f"memory://{uuid.uuid4().hex}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(data=st.binary(max_size=4096))
async def test_what_was_put_comes_back(store: BlobStore, data: bytes) -> None:
    ref = await store.put(data)
    assert await store.get(ref) == data
    assert ref.size_bytes == len(data)
    assert await store.has(ref)


async def test_the_same_bytes_are_stored_once(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path))
    assert await store.put(b"x") == await store.put(b"x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [
        tmp_path / (digest := (await store.put(b"x")).sha256)[:2] / digest
    ]


async def test_a_missing_blob_is_named(store: BlobStore) -> None:
    with pytest.raises(BlobMissing, match="a1" * 32):
        await store.get(pb.BlobRef(sha256="a1" * 32, size_bytes=1))
    assert not await store.has(pb.BlobRef(sha256="a1" * 32))


async def test_a_damaged_blob_is_never_returned_and_heals_when_put_again_shorter(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path))
    ref = await store.put(b"whole")
    (tmp_path / ref.sha256[:2] / ref.sha256).write_bytes(b"who")
    with pytest.raises(BlobDamaged):
        await store.get(ref)
    await store.put(b"whole")
    assert await store.get(ref) == b"whole"


async def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BlobUnavailable, match="file"):
        await BlobStore(str(tmp_path / "file")).put(b"x")


def test_an_unknown_kind_of_store_is_named() -> None:
    with pytest.raises(BlobUnavailable, match=r"blobs\.url"):
        BlobStore("nosuch://place")
