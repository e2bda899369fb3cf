"""A version's bytes arriving in a file, in order, hashed as they come.

The file under its final name is always whole and verified: until `finish` it has a name of its own with the suffix
`.part`, removed by `discard`; what a killed process left under such a name, the folder's owner removes. Does
not fsync unless asked: a node's memory needs none.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

import xxhash

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import ChunkMisplaced, DigestDiffers, NoRoom
from rein_transfer.wire import Chunk

PART = ".part"


class Landing:
    """Open from the manifest's arrival to `finish`; leaving the `with` block before that removes the file."""

    def __init__(self, path: Path, *, manifest: pb.WeightManifest) -> None:
        """Raises NoRoom when the file's folder has too little space."""
        free_bytes = shutil.disk_usage(path.parent).free
        if free_bytes < manifest.size_bytes:
            raise NoRoom(place=str(path.parent), wanted_bytes=manifest.size_bytes, free_bytes=free_bytes)
        self.path = path
        self.manifest = manifest
        self._file, part = tempfile.mkstemp(prefix=f"{path.name}.", suffix=PART, dir=path.parent)
        self._part = Path(part)
        self._hash = xxhash.xxh3_128()
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()

    @property
    def is_complete(self) -> bool:
        return self._num_bytes == self.manifest.size_bytes

    def write(self, chunk: Chunk) -> None:
        """Raises ChunkMisplaced, and NoRoom when somebody else took the space meanwhile."""
        size_bytes = self.manifest.size_bytes
        if chunk.offset != self._num_bytes or chunk.offset + chunk.data.nbytes > size_bytes:
            raise ChunkMisplaced(offset=chunk.offset, expected=self._num_bytes, size_bytes=size_bytes)
        self._hash.update(chunk.data)
        try:
            self._append(chunk.data)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NoRoom(
                place=str(self.path.parent), wanted_bytes=size_bytes - self._num_bytes, free_bytes=0
            ) from error

    def finish(self, *, is_durable: bool) -> None:
        """Verify and give the file its name; `is_durable`: on the disk before this returns. Raises DigestDiffers."""
        digest = self._hash.hexdigest()
        if not self.is_complete or digest != self.manifest.digest:
            raise DigestDiffers(version=self.manifest.version, wanted=self.manifest.digest, got=digest)
        if is_durable:
            os.fsync(self._file)
        self._close()
        self._part.replace(self.path)
        if is_durable:
            _sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove what arrived; nothing after `finish`."""
        self._close()
        self._part.unlink(missing_ok=True)

    def _append(self, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(self._file, rest, self._num_bytes)
            self._num_bytes += written
            rest = rest[written:]

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def write_durably(path: Path, content: bytes) -> None:
    """All of `content` under that name, on the disk, or what was there before."""
    part = path.with_name(path.name + PART)
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
