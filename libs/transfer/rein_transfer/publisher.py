"""The learner's side: one file or buffer becomes a version on the weight server.

`publish` returns only when the server has verified and stored the bytes. The server being away or restarting is
waited out within a bound; publishing the same bytes again is harmless, so a retry never needs to know how far the
last try came.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Self

import grpc

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import TransferRejected, TransferTransient, VersionTaken
from rein_transfer.manifest import CHUNK_BYTES, Weights, completed, frames_of
from rein_transfer.rpc import CHANNEL_OPTIONS, WeightStub

log = logging.getLogger(__name__)

RETRY_S = 1.0

_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class WeightPublisher:
    """Async context manager around a channel to the weight server."""

    def __init__(
        self, address: str, *, patience_s: float = 120.0, call_s: float = 600.0, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """`patience_s`: how long a server that is away is waited for; `call_s`: longest single try."""
        self._address = address
        self._patience_s = patience_s
        self._call_s = call_s
        self._chunk_bytes = chunk_bytes

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        self._stub = WeightStub(self._channel)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._channel.close()

    async def publish(self, fields: pb.WeightManifest, *, weights: Weights) -> pb.WeightManifest:
        """Publish; `fields` needs run, version, step and probe, the rest is filled in. Returns the whole manifest.

        Raises VersionTaken when the server has other bytes under this version, TransferRejected when it refuses these,
        TransferTransient when it stays away.
        """
        manifest = await asyncio.to_thread(completed, fields, weights=weights, chunk_bytes=self._chunk_bytes)
        deadline_s = asyncio.get_running_loop().time() + self._patience_s
        while True:
            try:
                await self._stub.publish(_stream(manifest, weights=weights), timeout_s=self._call_s)
            except grpc.aio.AioRpcError as error:
                self._judge(error, manifest=manifest, is_last=asyncio.get_running_loop().time() > deadline_s)
                log.warning("weights.publish_retried", extra={"version": manifest.version, "reason": error.details()})
                await asyncio.sleep(RETRY_S)
            else:
                return manifest

    def _judge(self, error: grpc.aio.AioRpcError, *, manifest: pb.WeightManifest, is_last: bool) -> None:
        """Raise unless another try makes sense."""
        details = error.details() or ""
        if error.code() is grpc.StatusCode.ALREADY_EXISTS:
            raise VersionTaken(run=manifest.run, version=manifest.version, detail=details) from error
        if error.code() in _REFUSED:
            raise TransferRejected(
                "transfer.refused",
                f"the weight server at {self._address} refused version {manifest.version}: {details}",
            ) from error
        if is_last:
            raise TransferTransient(
                "transfer.server_away",
                f"the weight server at {self._address} did not take version {manifest.version} within "
                f"{self._patience_s} s ({error.code().name}: {details}); start it or correct the address",
            ) from error


async def _stream(manifest: pb.WeightManifest, *, weights: Weights) -> AsyncIterator[bytes]:
    for frame in frames_of(manifest, weights=weights):
        yield frame
