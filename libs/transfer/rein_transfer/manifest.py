"""What names a version of the weights: the xxh3-128 of its file, its size, its probe."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from mmap import ACCESS_READ, mmap
from pathlib import Path

import xxhash

from rein.v1 import weights_pb2 as pb
from rein_transfer.wire import Buffer, chunk_frame, manifest_frame

CHUNK_BYTES = 1024 * 1024
"""Best throughput on loopback; under the 4 MiB at which gRPC refuses a message by default."""

Weights = Path | Buffer
"""A safetensors file, or its bytes."""


@contextmanager
def opened(weights: Weights) -> Iterator[memoryview]:
    """The bytes, mapped when they lie in a file."""
    if not isinstance(weights, Path):
        yield memoryview(weights)
        return
    with weights.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()


def digest_of(weights: Weights) -> str:
    """xxh3-128 in hex, as in a manifest."""
    with opened(weights) as view:
        return xxhash.xxh3_128_hexdigest(view)


def completed(fields: pb.WeightManifest, *, weights: Weights, chunk_bytes: int = CHUNK_BYTES) -> pb.WeightManifest:
    """`fields` (run, version, step, probe) with what follows from the bytes."""
    manifest = pb.WeightManifest()
    manifest.CopyFrom(fields)
    with opened(weights) as view:
        manifest.size_bytes = view.nbytes
        manifest.digest = xxhash.xxh3_128_hexdigest(view)
    manifest.chunk_bytes = chunk_bytes
    if not manifest.HasField("at"):
        manifest.at.FromDatetime(datetime.now(UTC))
    return manifest


def frames_of(manifest: pb.WeightManifest, *, weights: Weights) -> Iterator[bytes]:
    """The manifest's frame, then every chunk's, in order."""
    yield manifest_frame(manifest)
    with opened(weights) as view:
        for offset in range(0, view.nbytes, manifest.chunk_bytes):
            with view[offset : offset + manifest.chunk_bytes] as piece:
                yield chunk_frame(piece, offset=offset)
