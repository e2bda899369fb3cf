"""The pipe: the grant goes on, what the agent sends under its name does not, streams stream, and closing cuts."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from rein_sandboxes.pipe import Pipe, open_pipe
from rein_sandboxes.ports import PipeTarget
from rein_service.testing import eventually

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Gateway:
    """Keeps every byte it is sent, and answers as told."""

    answer: Serve
    received: bytearray = field(default_factory=bytearray)
    num_connections: int = 0
    num_lost: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            await self.answer(reader, writer)
            while chunk := await reader.read(65536):
                self.received += chunk
        except ConnectionError:
            pass
        finally:
            self.num_lost += 1
            writer.close()


@asynccontextmanager
async def piped(answer: Serve, *, patience_s: float = 1.0) -> AsyncIterator[tuple[int, Gateway, Pipe]]:
    """A pipe before a gateway; yields the port agents connect to."""
    gateway = Gateway(answer)
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    async with open_pipe(listener, target=PipeTarget(url=url, grant="the-grant", patience_s=patience_s)) as pipe:
        yield listener.getsockname()[1], gateway, pipe
    server.close()
    await server.wait_closed()
    await eventually(lambda: gateway.num_lost == gateway.num_connections)


def recorder(gateway_bytes: bytearray, *, until: bytes, answer: bytes = OK) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while until not in gateway_bytes:
            chunk = await reader.read(65536)
            if not chunk:
                return
            gateway_bytes.extend(chunk)
        writer.write(answer)
        await writer.drain()

    return serve


async def ask(port: int, request: bytes, *, num_bytes: int = len(OK)) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    try:
        return await asyncio.wait_for(reader.read(num_bytes), 5)
    finally:
        writer.close()
        await writer.wait_closed()


async def seen(request: bytes, *, until: bytes) -> tuple[bytes, bytes]:
    """What the gateway got, and what the agent got."""
    received = bytearray()
    async with piped(recorder(received, until=until)) as (port, _, _):
        answer = await ask(port, request)
    return bytes(received), answer


async def test_the_grant_is_added_and_the_body_is_untouched() -> None:
    received, answer = await seen(
        b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nContent-Length: 5\r\n\r\nhello",
        until=b"hello",
    )
    assert received == (
        b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nContent-Length: 5\r\n"
        b"x-rein-grant: the-grant\r\n\r\nhello"
    )
    assert answer == OK


@pytest.mark.parametrize("name", [b"x-rein-grant", b"X-Rein-Grant", b"X-REIN-GRANT"])
async def test_a_grant_from_inside_is_dropped(name: bytes) -> None:
    request = b"GET / HTTP/1.1\r\n" + name + b": forged\r\nHost: x\r\n" + name + b": again\r\n\r\n"
    received, _ = await seen(request, until=b"\r\n\r\n")
    assert b"forged" not in received
    assert b"again" not in received
    assert received.lower().count(b"x-rein-grant") == 1


async def test_a_chunked_body_stays_one() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"5;ext=1\r\nhello\r\n0\r\nX-Rein-Grant: forged\r\n\r\n"
    received, _ = await seen(head + body, until=b"0\r\n\r\n")
    assert received.endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    assert b"forged" not in received


async def test_every_request_of_a_connection_carries_the_grant() -> None:
    received = bytearray()
    async with piped(recorder(received, until=b"/third")) as (port, gateway, pipe):
        request = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
        await ask(port, request % b"first" + request % b"second" + request % b"third")
        assert gateway.num_connections == 1
        assert pipe.use().num_requests == 3
    assert received.count(b"x-rein-grant: the-grant\r\n") == 3


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length : 5\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nA: b\r\n X-Rein-Grant: folded\r\n\r\n",
        b"GET / HTTP/1.1\nX-Rein-Grant: forged\n\n",
        b"GET / HTTP/1.1\r\nA: b\rX-Rein-Grant: forged\r\n\r\n",
        b"CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_what_two_parsers_could_read_differently_is_refused(request_bytes: bytes) -> None:
    received = bytearray()
    async with piped(recorder(received, until=b"never")) as (port, _, _):
        answer = await ask(port, request_bytes, num_bytes=12)
    assert answer == b"HTTP/1.1 400"
    assert received == b""


async def test_an_answer_streams_as_it_comes() -> None:
    go_on = asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await go_on.wait()
        writer.write(b"6\r\nsecond\r\n0\r\n\r\n")

    async with piped(slowly) as (port, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"first"), 5)
        go_on.set()
        await asyncio.wait_for(reader.readuntil(b"second"), 5)
        writer.close()
        await writer.wait_closed()


async def test_a_large_body_passes_whole() -> None:
    body = bytes(range(256)) * 20_000
    received, _ = await seen(
        b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body, until=body[-1000:] + b""
    )
    assert received.count(body[:256]) >= 1


async def test_a_harness_that_hangs_up_is_felt_at_the_gateway() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with piped(never) as (port, gateway, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: gateway.num_connections == 1)
        writer.close()
        await eventually(lambda: gateway.num_lost == 1)


async def test_closing_the_pipe_ends_all_access() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with piped(never) as (port, gateway, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: gateway.num_connections == 1)
    with suppress(ConnectionError):
        assert await reader.read() == b""
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def test_a_gateway_that_is_away_is_a_503_and_counted() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    target = PipeTarget(url="http://127.0.0.1:9", grant="g", patience_s=0.0)
    async with open_pipe(listener, target=target) as pipe:
        answer = await ask(listener.getsockname()[1], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", num_bytes=12)
        assert answer == b"HTTP/1.1 503"
        assert pipe.use().num_unreachable == 1


async def test_a_gateway_that_is_just_restarting_is_waited_for() -> None:
    probe = socket.create_server(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    target = PipeTarget(url=f"http://127.0.0.1:{port}", grant="g", patience_s=10.0)
    async with open_pipe(listener, target=target) as pipe:
        asking = asyncio.create_task(ask(listener.getsockname()[1], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        await eventually(lambda: pipe.num_requests == 1)
        gateway = Gateway(recorder(bytearray(), until=b"\r\n\r\n"))
        server = await asyncio.start_server(gateway.serve, "127.0.0.1", port)
        assert await asking == OK
        await eventually(lambda: gateway.num_lost == 1)
        server.close()
