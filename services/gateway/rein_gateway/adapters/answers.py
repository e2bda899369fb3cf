"""Writing answers and errors: whole or streamed as was asked, always in the dialect's own form.

A streamed call keeps its status line back until it is generating, and then for a while, so that back-pressure and most
errors still have their own status; a call that takes longer gets headers, the stream's start and pings first. A stream
that is ready by then leaves in one piece.
"""

from http import HTTPStatus

import orjson
from aiohttp import web

from rein_dialects.dialect import Dialect
from rein_dialects.neutral import Answer, JsonObject, Request
from rein_gateway import metrics
from rein_gateway.errors import CallDelayed, CallRefused
from rein_gateway.flights import Flight

_STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


class Writer:
    """`stream_patience_s` and `ping_s`: see rein_gateway.config."""

    def __init__(self, *, stream_patience_s: float, ping_s: float) -> None:
        self._stream_patience_s = stream_patience_s
        self._ping_s = ping_s

    async def answer(
        self, request: web.Request, *, flight: Flight, asked: Request, dialect: Dialect
    ) -> web.StreamResponse:
        """Raises CallRefused, CallDelayed while the status can still be chosen."""
        if not asked.is_streamed:
            return json_answer(dialect.whole(await flight.answer(), model=asked.model))
        start = dialect.stream_start(
            answer_id=flight.answer_id, model=asked.model, prompt_tokens=flight.num_prompt_tokens
        )
        is_over = await flight.is_over_within(self._stream_patience_s)
        while not is_over and not flight.is_generating:
            is_over = await flight.is_over_within(self._stream_patience_s)
        if is_over:
            rest = _rest(await flight.answer(), asked, dialect)
            return web.Response(body=start + rest, headers=_STREAM_HEADERS)
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        await response.write(start)
        while not await flight.is_over_within(self._ping_s):
            await response.write(dialect.PING)
        try:
            rest = _rest(await flight.answer(), asked, dialect)
        except (CallRefused, CallDelayed) as error:
            metrics.CALLS_REFUSED.labels(error.code).inc()
            rest = dialect.stream_error(int(error.status), message=error.detail)
        await response.write(rest)
        await response.write_eof()
        return response

    def refusal(self, error: CallRefused | CallDelayed, *, dialect: Dialect) -> web.Response:
        """What SDKs read: whether to try again, and when."""
        headers = {"x-should-retry": "false"}
        if isinstance(error, CallDelayed):
            headers = {"x-should-retry": "true", "retry-after": str(error.retry_after_s)}
        body = dialect.error(int(error.status), message=error.detail)
        return json_answer(body, status=error.status, headers=headers)


def json_answer(
    body: JsonObject, *, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, headers={"content-type": "application/json", **(headers or {})}
    )


def _rest(answer: Answer, asked: Request, dialect: Dialect) -> bytes:
    return b"".join(dialect.stream_rest(answer, request=asked))
