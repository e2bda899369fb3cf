"""gRPC port of the weight server: rein.v1.WeightService, health, reflection. Errors become status codes."""

import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import NoReturn

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from rein.v1 import weights_pb2 as pb
from rein_bus.errors import ReinError
from rein_service import SetupError
from rein_transfer.errors import DigestDiffers, NoRoom, VersionTaken
from rein_transfer.rpc import SERVER_OPTIONS, SERVICE, Context, add_to_server
from rein_transfer.wire import Frame, parse
from rein_weightserver import metrics
from rein_weightserver.errors import NodeLeftOut, VersionMissing
from rein_weightserver.service import WeightServer

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_CODES: dict[type[ReinError], grpc.StatusCode] = {
    VersionTaken: grpc.StatusCode.ALREADY_EXISTS,
    DigestDiffers: grpc.StatusCode.DATA_LOSS,
    NoRoom: grpc.StatusCode.RESOURCE_EXHAUSTED,
    VersionMissing: grpc.StatusCode.NOT_FOUND,
    NodeLeftOut: grpc.StatusCode.ABORTED,
}


class WeightServicer:
    """Implements rein_transfer.rpc.RawWeightServicer."""

    def __init__(self, server: WeightServer) -> None:
        self._server = server

    async def publish(self, frames: AsyncIterator[bytes], context: Context) -> pb.PublishResponse:
        try:
            version = await self._server.publish(_parsed(frames))
        except ReinError as error:
            metrics.PUBLISHES.labels(outcome=error.code).inc()
            await _abort(context, error)
        metrics.PUBLISHES.labels(outcome="kept").inc()
        return pb.PublishResponse(version=version)

    async def subscribe(self, request: pb.SubscribeRequest, context: Context) -> AsyncIterator[bytes]:
        if not request.node:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a subscription must name its node")
        try:
            async with aclosing(self._server.subscribe(request)) as frames:
                async for frame in frames:
                    yield frame
        except ReinError as error:
            await _abort(context, error)

    async def confirm(self, request: pb.ConfirmRequest, context: Context) -> pb.ConfirmResponse:
        self._server.confirm(request)
        return pb.ConfirmResponse()

    async def list(self, request: pb.ListRequest, context: Context) -> pb.ListResponse:
        return self._server.list(request.run)

    async def rollback(self, request: pb.RollbackRequest, context: Context) -> pb.RollbackResponse:
        try:
            return pb.RollbackResponse(version=self._server.rollback(request.run, version=request.version))
        except ReinError as error:
            await _abort(context, error)


@asynccontextmanager
async def listening(server: WeightServer, *, host: str, port: int) -> AsyncIterator[int]:
    """Answer while open; gives the port. Raises SetupError when it is taken."""
    _check_free(host, port=port)
    rpc = grpc.aio.server(options=SERVER_OPTIONS)
    add_to_server(WeightServicer(server), rpc)
    health = health_aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, rpc)
    reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME, HEALTH], rpc)
    bound = rpc.add_insecure_port(f"{host}:{port}")
    await health.set("", health_pb2.HealthCheckResponse.SERVING)
    await rpc.start()
    try:
        yield bound
    finally:
        await rpc.stop(grace=0.5)


async def _parsed(frames: AsyncIterator[bytes]) -> AsyncIterator[Frame]:
    async for frame in frames:
        yield parse(frame)


async def _abort(context: Context, error: ReinError) -> NoReturn:
    code = _CODES.get(type(error), grpc.StatusCode.INVALID_ARGUMENT)
    await context.abort(code, error.detail)
    raise AssertionError("abort raises")


def _check_free(host: str, *, port: int) -> None:
    """gRPC's core would tell standard error in its own words; a taken port is named here first."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SetupError(
                "weights.port_taken",
                f"cannot listen on {host}:{port} (section listen): {error.strerror}; stop its owner or set another",
            ) from error
