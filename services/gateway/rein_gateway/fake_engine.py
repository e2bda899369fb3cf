"""A stand-in engine that speaks vLLM's generate route over real HTTP and samples from a script.

For tests and benchmarks. It knows no model: `say` gives the ids of the next samples in order, and after them it says
`usual_ids` for ever. Faults are attributes, set before the call they are meant for. Log-probabilities depend on id and
place alone, so that a test can tell them apart.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

GENERATE_PATH = "/inference/v1/generate"
_MAX_BODY_BYTES = 64 * 1024 * 1024

Reply = dict[str, Any]


@dataclass(eq=False, slots=True)
class FakeEngine:
    """Answers at once, unless told otherwise."""

    usual_ids: Sequence[int] = (1,)
    version: str = "1"
    versions: Sequence[tuple[str, int, int]] | None = None
    """Spans to report instead of one of `version`."""
    status: int = 200
    """Status of every answer; anything but 200 is an error."""
    error: str = "scripted"
    gate: asyncio.Event | None = None
    """Answers wait for it."""
    raw: bytes | None = None
    """Every answer is this instead."""
    spoil: Callable[[Reply], object] | None = None
    """Changes a reply before it leaves: leave out ids, shorten log-probabilities, miscount."""
    keeps_requests: bool = True
    """Off for benchmarks."""
    seen: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of all requests, in order."""
    num_running: int = 0
    num_aborted: int = 0
    """Requests whose client hung up before the answer."""
    url: str = ""
    _script: deque[tuple[Sequence[int], str]] = field(default_factory=deque)

    def say(self, ids: Sequence[int], *, finish_reason: str = "stop") -> None:
        """The next sample not yet scripted."""
        self._script.append((tuple(ids), finish_reason))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if self.keeps_requests:
            self.seen.append(body)
        said = self._script.popleft() if self._script else (self.usual_ids, "stop")
        self.num_running += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.num_aborted += 1
            raise
        finally:
            self.num_running -= 1
        if self.status != 200:
            return _json({"error": {"message": self.error, "code": self.status}}, status=self.status)
        if self.raw is not None:
            return web.Response(body=self.raw)
        reply = self._reply(body, *said)
        if self.spoil is not None:
            self.spoil(reply)
        return _json(reply)

    def _reply(self, body: dict[str, Any], said: Sequence[int], finish_reason: str) -> Reply:
        most = body["sampling_params"]["max_tokens"]
        ids = list(said[:most])
        spans = self.versions if self.versions is not None else [(self.version, 0, len(ids))]
        choice = {
            "index": 0,
            "finish_reason": finish_reason if len(said) <= most else "length",
            "token_ids": ids,
            "logprobs": {
                "content": [{"token_id": token, "logprob": logprob_of(token, at)} for at, token in enumerate(ids)]
            },
            "weight_versions": [{"version": version, "start": start, "end": end} for version, start, end in spans],
        }
        num_prompt = len(body["token_ids"])
        usage = {"prompt_tokens": num_prompt, "completion_tokens": len(ids), "total_tokens": num_prompt + len(ids)}
        return {"request_id": "generate-tokens-0", "usage": usage, "choices": [choice]}


def logprob_of(token: int, at: int) -> float:
    """What the stand-in reports for `token` at this place of a sample."""
    return -((token * 31 + at * 7) % 64 + 1) / 64


@asynccontextmanager
async def fake_engine(*, port: int = 0) -> AsyncIterator[FakeEngine]:
    """Serve on 127.0.0.1 until the block ends."""
    engine = FakeEngine()
    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    application.router.add_post(GENERATE_PATH, engine.handle)
    runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


def _json(body: Reply, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
