"""The gateway over HTTP."""

import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp

from rein_contracts.grants import GRANT_HEADER
from rein_runner.domain.session import SessionEnd
from rein_runner.errors import GatewayAway
from rein_service.clock import Clock

END_PATH = "/rein/v1/attempts/end"
CALL_S = 10.0
RETRY_S = 0.5


class HttpGateway:
    """A `Gateway`; open it with `open_gateway`."""

    def __init__(self, client: aiohttp.ClientSession, *, urls: Sequence[str], clock: Clock, patience_s: float) -> None:
        self._client = client
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._clock = clock
        self._patience_s = patience_s

    def url_of(self, attempt: str) -> str:
        return self._urls[zlib.crc32(attempt.encode()) % len(self._urls)]

    async def end(self, attempt: str, *, grant: str) -> SessionEnd | None:
        url = self.url_of(attempt) + END_PATH
        deadline_s = self._clock.monotonic() + self._patience_s
        while True:
            try:
                return await self._end(url, grant=grant)
            except (TimeoutError, aiohttp.ClientError, GatewayAway) as error:
                if self._clock.monotonic() + RETRY_S > deadline_s:
                    raise GatewayAway(
                        "inference.gateway_unreachable", f"{url}: {error or type(error).__name__}"
                    ) from error
            await self._clock.sleep(RETRY_S)

    async def _end(self, url: str, *, grant: str) -> SessionEnd | None:
        async with self._client.post(url, headers={GRANT_HEADER: grant}) as response:
            if response.status == HTTPStatus.NOT_FOUND:
                return None
            if response.status != HTTPStatus.OK:
                text = (await response.text())[:200]
                raise GatewayAway("inference.gateway_failed", f"status {response.status}: {text}")
            body = await response.json()
        return SessionEnd(num_turns=int(body["num_turns"]), limit=body["limit"])


@asynccontextmanager
async def open_gateway(urls: Sequence[str], *, clock: Clock, patience_s: float) -> AsyncIterator[HttpGateway]:
    """Connections are opened on first use and kept."""
    timeout = aiohttp.ClientTimeout(total=CALL_S)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        yield HttpGateway(client, urls=urls, clock=clock, patience_s=patience_s)
