"""The gRPC port of every service: Admin, health, reflection, and whatever services it adds.

The port is taken before anything is built, so that a taken port is named at once; calls are answered once the service
is built. Health turns NOT_SERVING when draining begins. Kept open until the service's loop has ended.
"""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from rein.v1 import admin_pb2, admin_pb2_grpc
from rein_service.errors import SetupError

ADMIN_NAME = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
HEALTH_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

#: A port may have one owner; without this Linux lets a second server share it and each gets half of the calls.
_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 16 * 1024 * 1024))

StatusContext = grpc.aio.ServicerContext[admin_pb2.GetStatusRequest, admin_pb2.GetStatusResponse]
DrainContext = grpc.aio.ServicerContext[admin_pb2.DrainRequest, admin_pb2.DrainResponse]


@dataclass(frozen=True, slots=True)
class Figures:
    """What GetStatus says about the moment."""

    is_draining: bool
    num_in_flight: int
    details: Mapping[str, str] = field(default_factory=dict)


class AdminServer:
    """Owns the server; `add` is for `build`."""

    def __init__(self, *, host: str, port: int) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        self._names = [ADMIN_NAME, HEALTH_NAME, reflection.SERVICE_NAME]
        self._health = health_aio.HealthServicer()
        try:
            _try(host, port=port)
            self.port: int = self._server.add_insecure_port(f"{host}:{port}")
        except (OSError, RuntimeError) as error:
            raise SetupError(
                "admin.port_taken",
                f"cannot listen on {host}:{port} (key admin.port): it is taken or not an address of this machine; "
                "stop its owner or set another port",
            ) from error

    def add(self, register: Callable[[grpc.aio.Server], None], *, service_name: str) -> None:
        """Serve another gRPC service here, e.g. `add(servicer.register, service_name="rein.v1.Dispatcher")`."""
        register(self._server)
        self._names.append(service_name)

    async def start(self, admin: admin_pb2_grpc.AdminServicer) -> None:
        """Answer from now on, as SERVING."""
        admin_pb2_grpc.add_AdminServicer_to_server(admin, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(self._names, self._server)
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def turn_away(self) -> None:
        """Report NOT_SERVING; calls are still answered."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, *, grace_s: float) -> None:
        """Take no more calls, let those in hand finish within `grace_s`. Safe before `start`."""
        await self._server.stop(grace_s)

    async def _set_health(self, status: int) -> None:
        for name in ["", *self._names]:
            await self._health.set(name, status)


def _try(host: str, *, port: int) -> None:
    """Raise OSError if the port cannot be had: gRPC's core would say so on standard error in its own words first."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """GetStatus and Drain."""

    def __init__(
        self, *, service: str, instance: str, config: str, figures: Callable[[], Figures], drain: Callable[[], None]
    ) -> None:
        self._about = admin_pb2.GetStatusResponse(service=service, instance=instance, config=config)
        self._figures = figures
        self._drain = drain
        self._started_s = time.monotonic()

    async def GetStatus(  # noqa: N802 - gRPC's name
        self, request: admin_pb2.GetStatusRequest, context: StatusContext
    ) -> admin_pb2.GetStatusResponse:
        figures = self._figures()
        status = admin_pb2.GetStatusResponse(
            uptime_s=time.monotonic() - self._started_s,
            is_draining=figures.is_draining,
            num_in_flight=figures.num_in_flight,
            details=figures.details,
        )
        status.MergeFrom(self._about)
        return status

    async def Drain(  # noqa: N802
        self, request: admin_pb2.DrainRequest, context: DrainContext
    ) -> admin_pb2.DrainResponse:
        self._drain()
        return admin_pb2.DrainResponse()
