"""Blobs in a folder, a bucket or memory, filed under the SHA-256 of their bytes.

A blob is there whole or not at all: local writes go to a temporary name, are synced and renamed; object stores do that
themselves. Storing the same bytes again is free. `get` verifies. Nothing is ever deleted here: retention belongs to
whoever runs the store.
"""

import asyncio
import hashlib
import os
import uuid
from pathlib import Path

import fsspec

from rein.v1 import identity_pb2 as pb
from rein_blobs.errors import BlobDamaged, BlobMissing, BlobUnavailable


class BlobStore:
    """Safe to share between tasks; every call works in a thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BlobUnavailable(
                "blobs.bad_url", f"cannot use the blob store {url!r} (key blobs.url): {error}"
            ) from error
        self._is_local = "file" in _protocols(self._fs)

    async def put(self, data: bytes) -> pb.BlobRef:
        """Store `data` durably. Raises BlobUnavailable."""
        return await asyncio.to_thread(self._put, data)

    async def get(self, ref: pb.BlobRef) -> bytes:
        """The bytes of `ref`. Raises BlobMissing, BlobDamaged, BlobUnavailable."""
        return await asyncio.to_thread(self._get, ref)

    async def has(self, ref: pb.BlobRef) -> bool:
        """Whether the store has it, without reading it."""
        return await asyncio.to_thread(self._fs.exists, self._path(ref.sha256))

    def _put(self, data: bytes) -> pb.BlobRef:
        ref = pb.BlobRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        path = self._path(ref.sha256)
        try:
            if self._fs.exists(path) and self._fs.size(path) == len(data):
                return ref
            if self._is_local:
                _write_whole(Path(path), data)
            else:
                self._fs.pipe_file(path, data)
        except OSError as error:
            raise BlobUnavailable("blobs.write_failed", f"cannot write to {self._url}: {error}") from error
        return ref

    def _get(self, ref: pb.BlobRef) -> bytes:
        try:
            data: bytes = self._fs.cat_file(self._path(ref.sha256))
        except FileNotFoundError as error:
            raise BlobMissing("blobs.missing", f"{self._url} has no blob {ref.sha256!r}") from error
        except OSError as error:
            raise BlobUnavailable("blobs.read_failed", f"cannot read from {self._url}: {error}") from error
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BlobDamaged("blobs.damaged", f"{self._path(ref.sha256)} does not hold the bytes it is named after")
        return data

    def _path(self, sha256: str) -> str:
        return f"{self._root.rstrip('/')}/{sha256[:2]}/{sha256}"


def _protocols(fs: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    protocol = fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
