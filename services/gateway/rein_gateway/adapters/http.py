"""The harnesses' side: an ASGI application that finds the dialect, checks the grant and writes the answer's form.

A streamed call keeps its status line back for `stream_patience_s`, so that an error still has its own status; after
that it sends headers, the stream's start and pings until the answer is there. A client that hangs up cancels its call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from xxhash import xxh3_128_digest

from rein.v1 import identity_pb2 as pb
from rein_bus.errors import ReinError
from rein_contracts.grants import GRANT_HEADER, GrantRefused, verify
from rein_dialects import openai_chat
from rein_dialects.dialect import DIALECTS, Dialect
from rein_dialects.neutral import Answer, Request, RequestRefused
from rein_gateway import metrics
from rein_gateway.errors import CallDelayed, CallRefused
from rein_gateway.service import Call, Gateway

END_PATH = "/rein/v1/attempts/end"
RETRY_AFTER_S = 1
PING_S = 5.0

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One HTTP request and how to answer it."""

    path: str
    headers: Mapping[bytes, bytes]
    receive: Receive
    send: Send

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), b"").decode("latin-1")

    async def reply(
        self, body: bytes, *, status: int = HTTPStatus.OK, extra: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *extra]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def body(self, *, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > max_bytes:
                detail = f"the body is over {max_bytes} bytes"
                raise CallRefused("request.too_large", detail, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            if not message.get("more_body"):
                return b"".join(parts)

    async def gone(self) -> None:
        """Return once the client has hung up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


class ClientGone(Exception):
    """Nobody waits for an answer."""


class HttpFace:
    """`app` is the ASGI application."""

    def __init__(self, gateway: Gateway, *, secret: bytes, max_body_bytes: int, stream_patience_s: float) -> None:
        self._gateway = gateway
        self._secret = secret
        self._max_body_bytes = max_body_bytes
        self._stream_patience_s = stream_patience_s

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/")
        exchange = _Exchange(path, dict(scope["headers"]), receive, send)
        dialect = next((d for end, d in DIALECTS.items() if path.endswith(end)), openai_chat)
        try:
            await self._route(scope["method"], exchange)
        except ClientGone:
            return
        except ReinError as error:
            metrics.CALLS_REFUSED.labels(error.code).inc()
            await self._refuse(exchange, dialect, error)

    async def _route(self, method: str, exchange: _Exchange) -> None:
        path = exchange.path
        if method in ("HEAD", "GET"):
            models = path.endswith("/v1/models")
            await exchange.reply(orjson.dumps({"object": "list", "data": [_MODEL]}) if models else b"{}")
        elif path.endswith(END_PATH):
            await self._end(exchange)
        elif path.endswith("/v1/messages/count_tokens"):
            self._grant(exchange)
            request = await self._request(exchange, DIALECTS["/v1/messages"])
            await exchange.reply(orjson.dumps({"input_tokens": self._gateway.count_tokens(request[0])}))
        else:
            for end, dialect in DIALECTS.items():
                if path.endswith(end):
                    await self._call(exchange, dialect)
                    return
            raise CallRefused("request.unknown_path", f"nothing is served at {path}", status=HTTPStatus.NOT_FOUND)

    def _grant(self, exchange: _Exchange) -> pb.AttemptGrant:
        try:
            return verify(exchange.header(GRANT_HEADER), secret=self._secret)
        except GrantRefused as error:
            raise CallRefused("grant.refused", str(error), status=HTTPStatus.UNAUTHORIZED) from error

    async def _end(self, exchange: _Exchange) -> None:
        session = await self._gateway.end(self._grant(exchange))
        if session is None:
            raise CallRefused("attempt.unknown", "this gateway has no such session", status=HTTPStatus.NOT_FOUND)
        await exchange.reply(orjson.dumps({"num_turns": session.num_turns, "limit": session.limit}))

    async def _request(self, exchange: _Exchange, dialect: Dialect) -> tuple[Request, bytes]:
        body = await exchange.body(max_bytes=self._max_body_bytes)
        try:
            value = orjson.loads(body)
            if not isinstance(value, dict):
                raise RequestRefused("the body must be a JSON object")
            return dialect.parse_request(value), body
        except (orjson.JSONDecodeError, RequestRefused) as error:
            raise CallRefused("request.malformed", str(error), status=HTTPStatus.BAD_REQUEST) from error

    async def _call(self, exchange: _Exchange, dialect: Dialect) -> None:
        grant = self._grant(exchange)
        request, body = await self._request(exchange, dialect)
        call = Call(
            grant=grant,
            request=request,
            dialect=dialect,
            body_digest=xxh3_128_digest(body),
            is_retry=exchange.header("x-stainless-retry-count") not in ("", "0"),
        )
        answering = asyncio.create_task(self._gateway.answer(call))
        gone = asyncio.create_task(exchange.gone())
        try:
            await self._deliver(exchange, call, answering, gone)
        finally:
            for task in (answering, gone):
                task.cancel()
            await asyncio.wait([answering, gone])

    async def _deliver(
        self, exchange: _Exchange, call: Call, answering: asyncio.Task[Answer], gone: asyncio.Task[None]
    ) -> None:
        patience_s = self._stream_patience_s if call.request.is_streamed else None
        await asyncio.wait([answering, gone], timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not answering.done():
            raise ClientGone
        if not call.request.is_streamed:
            answer = answering.result()
            await exchange.reply(orjson.dumps(call.dialect.whole(answer, model=call.request.model)))
            return
        if answering.done():
            answering.result()
        await self._stream(exchange, call, answering, gone)

    async def _stream(
        self, exchange: _Exchange, call: Call, answering: asyncio.Task[Answer], gone: asyncio.Task[None]
    ) -> None:
        head = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        await exchange.send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": head})
        while not answering.done():
            await _part(exchange, call.dialect.PING)
            await asyncio.wait([answering, gone], timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not answering.done():
                raise ClientGone
        try:
            answer = answering.result()
        except (CallRefused, CallDelayed) as error:
            await _part(exchange, call.dialect.stream_error(error.status, message=error.detail), is_last=True)
            return
        model = call.request.model
        start = call.dialect.stream_start(answer_id=answer.id, model=model, prompt_tokens=answer.usage.prompt_tokens)
        await _part(exchange, b"".join([start, *call.dialect.stream_rest(answer, model=model)]), is_last=True)

    async def _refuse(self, exchange: _Exchange, dialect: Dialect, error: ReinError) -> None:
        status = error.status if isinstance(error, CallRefused | CallDelayed) else HTTPStatus.INTERNAL_SERVER_ERROR
        retry = ((b"retry-after", str(RETRY_AFTER_S).encode()),) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ()
        body = orjson.dumps(dialect.error(int(status), message=error.detail))
        await exchange.reply(body, status=int(status), extra=retry)


_MODEL = {"id": "policy", "object": "model", "created": 0, "owned_by": "rein"}


async def _part(exchange: _Exchange, data: bytes, *, is_last: bool = False) -> None:
    await exchange.send({"type": "http.response.body", "body": data, "more_body": not is_last})
