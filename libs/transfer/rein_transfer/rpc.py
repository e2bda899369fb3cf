"""The fast path of `rein.v1.WeightService`: the same methods, with raw bytes where tensor bytes pass.

`WeightStub` is the client, `add_to_server` the server side. Both leave WeightFrame to `wire`; the other messages are
ordinary protobuf. Any generated stub can talk to such a server, and this client to any generated servicer.
"""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Protocol

import grpc

from rein.v1 import weights_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["WeightService"].full_name

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

#: Dead peers are noticed although nothing is sent; a frame may be as large as any client makes it, within reason.
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Few large frames and few large reads: with gRPC's defaults (16 and 8 KiB) they cost a quarter of a client's CPU.
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    ("grpc.http2.max_frame_size", 16 * 1024 * 1024 - 1),
    ("grpc.experimental.tcp_read_chunk_size", 1024 * 1024),
    ("grpc.experimental.tcp_min_read_chunk_size", 1024 * 1024),
    ("grpc.experimental.tcp_max_read_chunk_size", 8 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
SERVER_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

Context = grpc.aio.ServicerContext[Any, Any]


class RawWeightServicer(Protocol):
    """The service's methods, frames as bytes."""

    async def publish(self, frames: AsyncIterator[bytes], context: Context) -> pb.PublishResponse: ...

    def subscribe(self, request: pb.SubscribeRequest, context: Context) -> AsyncIterator[bytes]: ...

    async def confirm(self, request: pb.ConfirmRequest, context: Context) -> pb.ConfirmResponse: ...

    async def list(self, request: pb.ListRequest, context: Context) -> pb.ListResponse: ...

    async def rollback(self, request: pb.RollbackRequest, context: Context) -> pb.RollbackResponse: ...


def add_to_server(servicer: RawWeightServicer, server: grpc.aio.Server) -> None:
    """Answer `rein.v1.WeightService` on `server`."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Publish": grpc.stream_unary_rpc_method_handler(
            servicer.publish, response_serializer=pb.PublishResponse.SerializeToString
        ),
        "Subscribe": grpc.unary_stream_rpc_method_handler(
            servicer.subscribe, request_deserializer=pb.SubscribeRequest.FromString
        ),
        "Confirm": grpc.unary_unary_rpc_method_handler(
            servicer.confirm, pb.ConfirmRequest.FromString, pb.ConfirmResponse.SerializeToString
        ),
        "List": grpc.unary_unary_rpc_method_handler(
            servicer.list, pb.ListRequest.FromString, pb.ListResponse.SerializeToString
        ),
        "Rollback": grpc.unary_unary_rpc_method_handler(
            servicer.rollback, pb.RollbackRequest.FromString, pb.RollbackResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


class WeightStub:
    """Client side of the fast path."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._publish: grpc.aio.StreamUnaryMultiCallable[bytes, pb.PublishResponse] = channel.stream_unary(
            f"/{SERVICE}/Publish", response_deserializer=pb.PublishResponse.FromString
        )
        self._subscribe: grpc.aio.UnaryStreamMultiCallable[pb.SubscribeRequest, bytes] = channel.unary_stream(
            f"/{SERVICE}/Subscribe", request_serializer=pb.SubscribeRequest.SerializeToString
        )
        self._confirm = channel.unary_unary(
            f"/{SERVICE}/Confirm", pb.ConfirmRequest.SerializeToString, pb.ConfirmResponse.FromString
        )

    async def publish(self, frames: AsyncIterator[bytes], *, timeout_s: float) -> pb.PublishResponse:
        return await self._publish(frames, timeout=timeout_s, wait_for_ready=True)

    def subscribe(self, request: pb.SubscribeRequest) -> AsyncIterable[bytes]:
        return self._subscribe(request)

    async def confirm(self, request: pb.ConfirmRequest, *, timeout_s: float) -> None:
        await self._confirm(request, timeout=timeout_s)
