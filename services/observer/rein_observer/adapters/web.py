"""Serves an ASGI application inside the service's own loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from rein_observer.errors import PagePortTaken


@asynccontextmanager
async def served(app: Callable[..., Any], *, host: str, port: int) -> AsyncIterator[None]:
    """Serve until the block ends. Raises PagePortTaken."""
    listening = _listen(host, port=port)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    # Not `serve`: that one takes over the process's signals, which the service handles itself.
    serving = asyncio.create_task(server._serve([listening]), name="page")
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
        raise PagePortTaken(host, port=port) from error
    listening.listen(64)
    return listening
