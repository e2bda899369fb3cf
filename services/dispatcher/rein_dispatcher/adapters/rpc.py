"""gRPC face of the dispatcher: errors of the domain become status codes, nothing else happens here."""

from typing import Any, NoReturn

import grpc

from rein.v1 import dispatcher_pb2 as rpc
from rein.v1 import dispatcher_pb2_grpc
from rein_bus.errors import RejectedError
from rein_dispatcher.errors import ClusterBusy, RunExists, RunMissing, SpecRejected
from rein_dispatcher.service import Dispatcher

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = rpc.DESCRIPTOR.services_by_name["Dispatcher"].full_name

_STATUS = {
    SpecRejected: grpc.StatusCode.INVALID_ARGUMENT,
    RunExists: grpc.StatusCode.ALREADY_EXISTS,
    RunMissing: grpc.StatusCode.NOT_FOUND,
    ClusterBusy: grpc.StatusCode.FAILED_PRECONDITION,
}


class DispatcherServicer(dispatcher_pb2_grpc.DispatcherServicer):
    """StartRun, StopRun, GetRun."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def register(self, server: grpc.aio.Server) -> None:
        dispatcher_pb2_grpc.add_DispatcherServicer_to_server(self, server)

    async def StartRun(  # noqa: N802 - gRPC's name
        self, request: rpc.StartRunRequest, context: Context
    ) -> rpc.StartRunResponse:
        try:
            return rpc.StartRunResponse(run=await self._dispatcher.start_run(request.spec))
        except RejectedError as error:
            return await _refuse(context, error)

    async def StopRun(  # noqa: N802
        self, request: rpc.StopRunRequest, context: Context
    ) -> rpc.StopRunResponse:
        try:
            await self._dispatcher.stop_run(request.run)
        except RejectedError as error:
            return await _refuse(context, error)
        return rpc.StopRunResponse()

    async def GetRun(  # noqa: N802
        self, request: rpc.GetRunRequest, context: Context
    ) -> rpc.GetRunResponse:
        try:
            return await self._dispatcher.get_run(request.run)
        except RejectedError as error:
            return await _refuse(context, error)


async def _refuse(context: Context, error: RejectedError) -> NoReturn:
    await context.abort(_STATUS.get(type(error), grpc.StatusCode.INTERNAL), str(error))
    raise AssertionError("abort returned")
