"""The HTTP gateway against a server that behaves, is away, fails or does not know the session."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rein_runner.adapters.gateway import END_PATH, HttpGateway, open_gateway
from rein_runner.domain.session import SessionEnd
from rein_runner.errors import GatewayAway
from rein_service.clock import SystemClock


class Server:
    """Answers with what is scripted, then with the last of it."""

    def __init__(self, *answers: web.Response) -> None:
        self.answers = list(answers)
        self.grants: list[str | None] = []

    async def end(self, request: web.Request) -> web.Response:
        self.grants.append(request.headers.get("x-rein-grant"))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type)


async def serving(server: Server) -> TestServer:
    application = web.Application()
    application.router.add_post(END_PATH, server.end)
    started = TestServer(application)
    await started.start_server()
    return started


GOOD = web.json_response({"num_turns": 3, "limit": "turns"})


async def ended(server: Server, *, patience_s: float = 0.0) -> SessionEnd | None:
    started = await serving(server)
    try:
        async with open_gateway([str(started.make_url(""))], clock=SystemClock(), patience_s=patience_s) as gateway:
            return await gateway.end("r.g0/1#1", grant="the-grant")
    finally:
        await started.close()


async def test_a_session_is_ended_in_the_attempts_name() -> None:
    server = Server(GOOD)
    assert await ended(server) == SessionEnd(num_turns=3, limit="turns")
    assert server.grants == ["the-grant"]


async def test_an_unknown_session_is_none() -> None:
    assert await ended(Server(web.Response(status=404))) is None


async def test_a_failing_gateway_is_asked_again_within_its_patience() -> None:
    assert await ended(Server(web.Response(status=503), GOOD), patience_s=5.0) == SessionEnd(num_turns=3, limit="turns")


async def test_a_gateway_that_keeps_failing_is_away() -> None:
    with pytest.raises(GatewayAway, match="503"):
        await ended(Server(web.Response(status=503)))


async def test_a_gateway_that_is_not_there_is_away() -> None:
    async with open_gateway(["http://127.0.0.1:9"], clock=SystemClock(), patience_s=0.0) as gateway:
        with pytest.raises(GatewayAway, match=r"127\.0\.0\.1:9"):
            await gateway.end("r.g0/1#1", grant="x")


async def test_an_attempt_keeps_to_one_gateway_and_attempts_spread() -> None:
    async with open_gateway(["http://a", "http://b"], clock=SystemClock(), patience_s=0.0) as gateway:
        assert isinstance(gateway, HttpGateway)
        urls = {gateway.url_of(f"r.g{number}/0#1") for number in range(50)}
        assert urls == {"http://a", "http://b"}
        assert gateway.url_of("r.g1/0#1") == gateway.url_of("r.g1/0#1")
