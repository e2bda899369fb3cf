"""The node's side: frames as they arrive, confirmations back. Holds no state; the caller decides what to keep."""

from collections.abc import AsyncGenerator
from typing import Self

import grpc

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import LeftOut, TransferTransient
from rein_transfer.rpc import CHANNEL_OPTIONS, WeightStub
from rein_transfer.wire import Frame, parse


class WeightSubscriber:
    """Async context manager around a channel to the weight server."""

    def __init__(self, address: str, *, confirm_s: float = 20.0) -> None:
        self._address = address
        self._confirm_s = confirm_s

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        self._stub = WeightStub(self._channel)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._channel.close()

    async def frames(self, request: pb.SubscribeRequest) -> AsyncGenerator[Frame, None]:
        """Everything the server sends until the stream ends, which always raises.

        Raises LeftOut when the server ended the subscription, TransferTransient when the stream ends or breaks,
        FrameDamaged when it carries something else.
        """
        try:
            async for frame in self._stub.subscribe(request):
                yield parse(frame)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:
                raise LeftOut(error.details() or "") from error
            raise self._away(error) from error
        raise TransferTransient("transfer.stream_ended", f"the weight server at {self._address} ended the stream")

    async def confirm(self, request: pb.ConfirmRequest) -> None:
        """Tell the server. Raises TransferTransient."""
        try:
            await self._stub.confirm(request, timeout_s=self._confirm_s)
        except grpc.aio.AioRpcError as error:
            raise self._away(error) from error

    def _away(self, error: grpc.aio.AioRpcError) -> TransferTransient:
        return TransferTransient(
            "transfer.stream_broken", f"the weight server at {self._address}: {error.code().name} {error.details()}"
        )
