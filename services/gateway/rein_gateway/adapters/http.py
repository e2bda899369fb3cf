"""The harnesses' side: finds the dialect, checks the grant, hands the call on and writes the answer in the asked form.

A base URL may carry any path in front. A client that hangs up cancels its handler, and with it its call. Everything is
refused without a grant but the probes of `/`.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from aiohttp import web

from rein.v1 import identity_pb2 as pb
from rein_contracts.grants import GRANT_HEADER, GrantRefused, verify
from rein_dialects import anthropic, openai_chat
from rein_dialects.dialect import Dialect
from rein_dialects.neutral import RequestRefused
from rein_dialects.reading import Memory
from rein_gateway import metrics
from rein_gateway.adapters.answers import Writer, json_answer
from rein_gateway.attempts import Attempts
from rein_gateway.calls import Call, Calls
from rein_gateway.config import GatewayConfig, HttpSettings
from rein_gateway.errors import CallDelayed, CallRefused
from rein_gateway.wiring import Core
from rein_service import SetupError
from rein_service.clock import Clock

END_PATH = "/rein/v1/attempts/end"
MODELS_PATH = "/v1/models"
COUNT_PATH = "/v1/messages/count_tokens"
DIALECTS: Mapping[str, Dialect] = {"/v1/messages": anthropic, "/v1/chat/completions": openai_chat}

#: How SDKs mark what they send again.
_RETRY_HEADER = "x-stainless-retry-count"
_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What requests are answered from."""

    calls: Calls
    attempts: Attempts
    clock: Clock
    secret: bytes
    """Verifies grants."""
    model_name: str

    @classmethod
    def of(cls, core: Core, config: GatewayConfig, *, clock: Clock) -> Self:
        secret = config.grant_secret.get_secret_value().encode()
        return cls(core.calls, core.attempts, clock, secret, config.model_name)


class HttpListener:
    """A `Listener`; open it with `open_listener`."""

    def __init__(self, desk: Desk, *, settings: HttpSettings, listening: socket.socket) -> None:
        self._desk = desk
        self._writer = Writer(stream_patience_s=settings.stream_patience_s, ping_s=settings.ping_s)
        self._listening = listening
        self.num_handled = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_finishing = False
        application = web.Application(client_max_size=settings.max_body_bytes)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            application, handler_cancellation=True, access_log=None, shutdown_timeout=_CLOSE_S, keepalive_timeout=120
        )

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._listening, backlog=1024).start()

    async def finish(self) -> None:
        self.is_finishing = True
        await self._idle.wait()

    async def close(self) -> None:
        await self._runner.cleanup()
        self._listening.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.num_handled += 1
        self._idle.clear()
        dialect = _dialect_of(request.path)
        try:
            return await self._route(request)
        except (CallRefused, CallDelayed) as error:
            metrics.CALLS_REFUSED.labels(error.code).inc()
            return self._writer.refusal(error, dialect=dialect or openai_chat)
        finally:
            self.num_handled -= 1
            if not self.num_handled:
                self._idle.set()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        for method, end, answer in self._routes():
            if request.method == method and request.path.endswith(end):
                return await answer(request)
        if request.method in ("GET", "HEAD") and "/v1/" not in request.path:
            return json_answer({"service": "rein-gateway"})
        text = f"{request.method} {request.path} is not served here"
        raise CallRefused("request.unknown_path", text, status=HTTPStatus.NOT_FOUND)

    def _routes(self) -> tuple[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]], ...]:
        return (
            *(("POST", end, self._call) for end in DIALECTS),
            ("POST", COUNT_PATH, self._count),
            ("POST", END_PATH, self._end),
            ("GET", MODELS_PATH, self._models),
        )

    async def _call(self, request: web.Request) -> web.StreamResponse:
        if self.is_finishing:
            raise CallDelayed("gateway.draining", "this gateway is about to stop; try again")
        grant = self._grant(request)
        dialect = _dialect_of(request.path) or openai_chat
        raw = await _body(request)
        attempt = self._desk.attempts.opened(grant)
        try:
            asked = dialect.parse_request(raw, memory=attempt.memory)
            is_retry = request.headers.get(_RETRY_HEADER, "0") not in ("", "0")
            flight = self._desk.calls.begin(Call(attempt, asked, dialect, is_retry))
        except RequestRefused as error:
            raise CallRefused("request.malformed", str(error), status=HTTPStatus.BAD_REQUEST) from error
        with flight.attended():
            return await self._writer.answer(request, flight=flight, asked=asked, dialect=dialect)

    async def _count(self, request: web.Request) -> web.StreamResponse:
        self._grant(request)
        raw = await _body(request)
        try:
            num_tokens = self._desk.calls.count_tokens(anthropic.parse_request(raw, memory=Memory()))
        except RequestRefused as error:
            raise CallRefused("request.malformed", str(error), status=HTTPStatus.BAD_REQUEST) from error
        return json_answer({"input_tokens": num_tokens})

    async def _end(self, request: web.Request) -> web.StreamResponse:
        ended = await self._desk.attempts.end(self._grant(request))
        if ended is None:
            text = "this gateway has seen no call of this attempt"
            raise CallRefused("attempt.unknown", text, status=HTTPStatus.NOT_FOUND)
        return json_answer({"num_turns": ended.num_turns, "limit": ended.limit})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        self._grant(request)
        name = self._desk.model_name
        model = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 0, "owned_by": "rein"}
        return json_answer({"object": "list", "data": [model], "has_more": False})

    def _grant(self, request: web.Request) -> pb.AttemptGrant:
        try:
            now_s = self._desk.clock.now().timestamp()
            return verify(request.headers.get(GRANT_HEADER, ""), secret=self._desk.secret, now_s=now_s)
        except GrantRefused as error:
            raise CallRefused("grant.refused", str(error), status=HTTPStatus.UNAUTHORIZED) from error


@asynccontextmanager
async def open_listener(desk: Desk, *, settings: HttpSettings) -> AsyncIterator[HttpListener]:
    """Take the port now; requests are answered once `start` was called. Raises SetupError."""
    listener = HttpListener(desk, settings=settings, listening=_listen(settings))
    try:
        yield listener
    finally:
        await listener.close()


def _listen(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise SetupError(
            "http.port_taken",
            f"cannot listen on {settings.host}:{settings.port} (key http.port): {error.strerror}; "
            "stop its owner or set another port",
        ) from error
    return listening


def _dialect_of(path: str) -> Dialect | None:
    """The dialect in which a path is answered, its errors too."""
    return next((dialect for end, dialect in DIALECTS.items() if end in path), None)


async def _body(request: web.Request) -> bytes:
    """Raises CallRefused."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise CallRefused("request.too_large", str(error.text), status=status) from error
