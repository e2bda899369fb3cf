"""The one way out of a sandbox: an HTTP/1.1 pipe to a gateway, served from outside.

Requests are parsed and written anew, so that the gateway and the pipe cannot disagree on where one ends; the grant is
added to each, and whatever the agent sent under that name is dropped. Answers pass as bytes. Each connection from
inside has one connection to the gateway. The pipe reads no body and keeps no record; closing it ends all access.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools

from rein_contracts.grants import GRANT_HEADER
from rein_sandboxes.ports import PipeTarget, PipeUse

log = logging.getLogger(__name__)

#: Hop-by-hop or rewritten here.
_DROPPED = frozenset(
    {GRANT_HEADER.encode(), b"connection", b"proxy-connection", b"upgrade", b"te", b"trailer", b"expect"}
)
_HEAD_BYTES = 64 * 1024
_RETRY_S = 0.2


@dataclass(slots=True)
class Pipe:
    """An open pipe; shared by its connections."""

    target: PipeTarget
    connections: set["_Connection"] = field(default_factory=set)
    num_requests: int = 0
    num_unreachable: int = 0

    def use(self) -> PipeUse:
        return PipeUse(num_requests=self.num_requests, num_unreachable=self.num_unreachable)


@asynccontextmanager
async def open_pipe(listener: socket.socket, *, target: PipeTarget) -> AsyncIterator[Pipe]:
    """Serve `listener` until the block ends; then every connection is cut."""
    pipe = Pipe(target)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(pipe), sock=listener)
    try:
        yield pipe
    finally:
        server.close()
        for connection in tuple(pipe.connections):
            connection.cut()


class _Connection(asyncio.Protocol):
    """From inside. Parses requests; everything it hears from the gateway goes back unread."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._parser = httptools.HttpRequestParser(self)
        self._inside: asyncio.Transport | None = None
        self._gateway: asyncio.Transport | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._waiting = bytearray()
        """For the gateway, while there is no connection to it."""
        self._head: list[bytes] = []
        self._head_bytes = 0
        self._url = b""
        self._framing = b""

    # ---- from inside

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._inside = transport
        self._pipe.connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            log.warning("pipe.request_refused", extra={"detail": str(error)})
            self._answer(400, "the request is not plain HTTP/1.1")

    def connection_lost(self, error: Exception | None) -> None:
        self._pipe.connections.discard(self)
        self._inside = None
        self.cut()

    def pause_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.pause_reading()

    def resume_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.resume_reading()

    def cut(self) -> None:
        """Close both sides now."""
        if self._dialling is not None:
            self._dialling.cancel()
        for transport in (self._inside, self._gateway):
            if transport is not None:
                transport.abort()

    # ---- parser's callbacks

    def on_message_begin(self) -> None:
        self._head, self._head_bytes, self._url, self._framing = [], 0, b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name + value)
        lower = name.lower()
        if lower in {b"content-length", b"transfer-encoding"}:
            if self._framing:
                raise httptools.HttpParserError("two lengths")
            self._framing = lower
        if lower == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise httptools.HttpParserError("an unknown transfer encoding")
        elif lower in _DROPPED:
            return
        self._head.append(name + b": " + value + b"\r\n")

    def on_headers_complete(self) -> None:
        self._pipe.num_requests += 1
        start = self._parser.get_method() + b" " + self._url + b" HTTP/1.1\r\n"
        grant = f"{GRANT_HEADER}: {self._pipe.target.grant}\r\n\r\n".encode()
        self._send(start + b"".join(self._head) + grant)

    def on_body(self, body: bytes) -> None:
        self._send(b"%x\r\n%b\r\n" % (len(body), body) if self._framing == b"transfer-encoding" else body)

    def on_message_complete(self) -> None:
        if self._framing == b"transfer-encoding":
            self._send(b"0\r\n\r\n")

    def _count(self, part: bytes) -> None:
        self._head_bytes += len(part)
        if self._head_bytes > _HEAD_BYTES:
            raise httptools.HttpParserError("the head is too long")

    # ---- to the gateway

    def _send(self, data: bytes) -> None:
        if self._gateway is not None:
            self._gateway.write(data)
            return
        self._waiting += data
        if self._inside is not None and len(self._waiting) > _HEAD_BYTES:
            self._inside.pause_reading()
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(), name="pipe-dial")

    async def _dial(self) -> None:
        """Connect, waiting for a gateway that is just being restarted."""
        loop = asyncio.get_running_loop()
        place = urlsplit(self._pipe.target.url)
        deadline_s = loop.time() + self._pipe.target.patience_s
        while True:
            try:
                await loop.create_connection(lambda: _Answers(self), place.hostname or "", place.port or 80)
                return
            except OSError as error:
                if loop.time() + _RETRY_S > deadline_s:
                    self._pipe.num_unreachable += 1
                    log.warning(
                        "pipe.gateway_unreachable", extra={"gateway": self._pipe.target.url, "detail": str(error)}
                    )
                    self._answer(503, "the model is unreachable")
                    return
            await asyncio.sleep(_RETRY_S)

    def gateway_opened(self, transport: asyncio.Transport) -> None:
        if self._inside is None:
            transport.abort()
            return
        self._gateway = transport
        transport.write(bytes(self._waiting))
        self._waiting.clear()
        self._inside.resume_reading()

    def gateway_sent(self, data: bytes) -> None:
        if self._inside is not None:
            self._inside.write(data)

    def gateway_lost(self) -> None:
        self._gateway = None
        if self._inside is not None:
            self._inside.close()

    def slow_gateway(self, is_slow: bool) -> None:
        if self._inside is not None:
            with suppress(RuntimeError):  # already closing
                (self._inside.pause_reading if is_slow else self._inside.resume_reading)()

    def _answer(self, status: int, text: str) -> None:
        """Answer in the pipe's own name, and hang up. The bodies of both dialects' errors have this shape."""
        if self._inside is None or self._inside.is_closing():
            return
        body = b'{"type":"error","error":{"type":"api_error","message":"%b"}}' % text.encode()
        reason = {400: b"Bad Request", 503: b"Service Unavailable"}[status]
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % (
            status,
            reason,
            len(body),
        )
        self._inside.write(head + b"connection: close\r\n\r\n" + body)
        self._inside.close()


class _Answers(asyncio.Protocol):
    """From the gateway."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection.gateway_opened(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.gateway_sent(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.gateway_lost()

    def pause_writing(self) -> None:
        self._connection.slow_gateway(True)

    def resume_writing(self) -> None:
        self._connection.slow_gateway(False)
