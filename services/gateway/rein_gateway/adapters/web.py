"""Serves an ASGI application inside the service's own loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from rein_bus.errors import FatalError


class PortTaken(FatalError):
    """Another process listens on the port."""


@asynccontextmanager
async def served(app: Callable[..., Any], *, host: str, port: int) -> AsyncIterator[None]:
    """Serve until the block ends. Raises PortTaken."""
    listening = _listen(host, port=port)
    config = uvicorn.Config(
        app,
        http="httptools",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=120,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)
    # Not `serve`: that one takes over the process's signals, which the service handles itself.
    serving = asyncio.create_task(server._serve([listening]), name="http")
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def _listen(host: str, *, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise PortTaken(
            "http.port_taken", f"cannot listen on {host}:{port}; stop what uses it or set the port"
        ) from error
    listening.listen(1024)
    return listening
