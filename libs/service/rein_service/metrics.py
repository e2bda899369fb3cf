"""The Prometheus endpoint of a service. Services declare their metrics in their own `metrics.py`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import start_http_server

from rein_service.errors import SetupError


@asynccontextmanager
async def metrics_endpoint(*, host: str, port: int) -> AsyncIterator[None]:
    """Serve `/metrics` from a thread while open; port 0 = do not. Raises SetupError when the port is taken."""
    if port == 0:
        yield
        return
    try:
        server, thread = start_http_server(port, addr=host)
    except OSError as error:
        raise SetupError(
            "metrics.port_taken",
            f"cannot listen on {host}:{port} (key metrics_port): {error.strerror}; stop its owner or set another port",
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
