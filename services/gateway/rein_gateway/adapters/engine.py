"""vLLM's token-in, token-out route."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from rein.v1 import identity_pb2 as pb
from rein_gateway.domain.generation import Generation
from rein_gateway.errors import CallDelayed

PATH = "/inference/v1/generate"


class VllmEngine:
    """An `Engine`; open it with `open_engine`."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def generate(
        self, url: str, *, token_ids: Sequence[int], sampling: pb.Sampling, cache_salt: str
    ) -> Generation:
        """Closing the connection, which a cancelled call does, makes the engine abort."""
        body = {
            "token_ids": token_ids,
            "cache_salt": cache_salt,
            "stream": False,
            "sampling_params": {
                "max_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": 1.0,
                "top_k": -1,
                "logprobs": 0,
                "skip_special_tokens": False,
            },
        }
        headers = {"content-type": "application/json"}
        try:
            async with self._client.post(url + PATH, data=orjson.dumps(body), headers=headers) as response:
                raw = await response.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise CallDelayed("inference.unreachable", f"the engine did not answer: {error!r}") from error
        if response.status != HTTPStatus.OK:
            raise CallDelayed("inference.failed", f"the engine answered {response.status}: {raw[:200]!r}")
        return read_generation(orjson.loads(raw))


@asynccontextmanager
async def open_engine(*, max_calls: int = 1024) -> AsyncIterator[VllmEngine]:
    connector = aiohttp.TCPConnector(limit=max_calls)
    timeout = aiohttp.ClientTimeout(total=None, connect=5)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        yield VllmEngine(client)


def read_generation(body: dict[str, Any]) -> Generation:
    """What the engine reported; what it left out stays empty, and the turn cannot be trained on."""
    choice = body["choices"][0]
    ids = tuple(choice.get("token_ids") or ())
    content = (choice.get("logprobs") or {}).get("content") or ()
    logprobs = tuple(entry["logprob"] for entry in content)
    if [entry.get("token_id") for entry in content] != list(ids):
        logprobs = ()
    spans = tuple(
        (int(span["version"]) if str(span["version"]).isdigit() else 0, span["start"], span["end"])
        for span in choice.get("weight_versions") or ()
    )
    return Generation(ids, logprobs, spans, str(choice.get("finish_reason") or "unknown"))
