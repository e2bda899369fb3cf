"""gRPC calls of the command line: health, status, runs. Every failure to reach a service is `ServiceUnreachable`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rein.v1 import admin_pb2, admin_pb2_grpc, dispatcher_pb2_grpc
from rein.v1 import dispatcher_pb2 as rpc
from rein.v1 import events_pb2 as ev
from rein_cli.errors import CannotDo, ServiceUnreachable

CALL_S = 5.0
#: StartRun reads the task set before it answers.
START_S = 60.0

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


async def is_serving(address: str) -> bool:
    """Whether the service there says that it is ready."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def get_status(name: str, *, address: str) -> admin_pb2.GetStatusResponse:
    async with _calling(f"service {name}", address=address) as channel:
        return await admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=CALL_S)


async def start_run(spec: ev.RunSpec, *, address: str) -> str:
    async with _calling("the dispatcher", address=address) as channel:
        stub = dispatcher_pb2_grpc.DispatcherStub(channel)
        return (await stub.StartRun(rpc.StartRunRequest(spec=spec), timeout=START_S)).run


async def stop_run(run: str, *, address: str) -> None:
    async with _calling("the dispatcher", address=address) as channel:
        await dispatcher_pb2_grpc.DispatcherStub(channel).StopRun(rpc.StopRunRequest(run=run), timeout=CALL_S)


async def get_run(run: str, *, address: str) -> rpc.GetRunResponse:
    async with _calling("the dispatcher", address=address) as channel:
        return await dispatcher_pb2_grpc.DispatcherStub(channel).GetRun(rpc.GetRunRequest(run=run), timeout=CALL_S)


@asynccontextmanager
async def _calling(what: str, *, address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            yield channel
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if error.code() in _AWAY:
                raise ServiceUnreachable(what, address=address, reason=error.code().name.lower()) from error
            raise CannotDo("rpc.refused", f"{what} refused: {details}") from error
