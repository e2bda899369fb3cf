"""vLLM's generate route: token ids in, token ids out, with log-probabilities and policy versions.

Only what the engine says is believed; what it leaves out stays out (`Generation.fault` decides). `min_tokens` is never
sent: it masks the end token inside the log-probabilities. Closing the connection aborts the request in the engine.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from io import BytesIO
from typing import Any

import aiohttp
import orjson

from rein.v1 import identity_pb2 as pb
from rein_gateway.domain.generation import Generation
from rein_gateway.domain.session import Ids
from rein_gateway.errors import CallRefused, EngineAway, PromptTooLong

GENERATE_PATH = "/inference/v1/generate"
_CONNECT_S = 5.0
#: Larger bodies are sent in parts, so that the loop is not held up.
_WHOLE_BYTES = 1024 * 1024
_JSON = {"content-type": "application/json"}
#: How the engine's refusal of a prompt that fills its window begins.
_TOO_LONG = "The decoder prompt (length"


class HttpEngine:
    """An `Engine`; open it with `open_engine`."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def generate(
        self, url: str, *, token_ids: Ids, sampling: pb.Sampling, stop_id: int, cache_salt: str
    ) -> Generation:
        body = orjson.dumps(_request(token_ids, sampling, stop_id, cache_salt), option=orjson.OPT_SERIALIZE_NUMPY)
        data = body if len(body) < _WHOLE_BYTES else BytesIO(body)
        try:
            async with self._client.post(url + GENERATE_PATH, data=data, headers=_JSON) as response:
                status, reply = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineAway("engine.away", f"{url}: {error or type(error).__name__}") from error
        if status != HTTPStatus.OK:
            raise _refusal(url, status, reply)
        return generation_of(url, reply)


@asynccontextmanager
async def open_engine(*, patience_s: float) -> AsyncIterator[HttpEngine]:
    """Connections are kept; one generation may take `patience_s`."""
    timeout = aiohttp.ClientTimeout(total=patience_s, sock_connect=_CONNECT_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False) as client:
        yield HttpEngine(client)


def _request(token_ids: Ids, sampling: pb.Sampling, stop_id: int, cache_salt: str) -> Mapping[str, Any]:
    return {
        "token_ids": token_ids,
        "cache_salt": cache_salt,
        "stream": False,
        "sampling_params": {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "logprobs": 0,
            "stop_token_ids": [stop_id],
            "skip_special_tokens": False,
        },
    }


def generation_of(url: str, reply: bytes) -> Generation:
    """The engine's reply as it is. Raises EngineAway when it is no reply of this route or was broken off."""
    try:
        body = orjson.loads(reply)
        choice, usage = body["choices"][0], body.get("usage") or {}
        content = (choice.get("logprobs") or {}).get("content") or ()
        generation = Generation(
            token_ids=tuple(choice.get("token_ids") or ()),
            logprobs=tuple(each["logprob"] for each in content),
            logprob_ids=tuple(each["token_id"] for each in content),
            versions=tuple(
                (_version(span["version"]), span["start"], span["end"]) for span in choice.get("weight_versions") or ()
            ),
            finish_reason=str(choice.get("finish_reason")),
            num_prompt_tokens=usage.get("prompt_tokens"),
            num_sampled_tokens=usage.get("completion_tokens"),
        )
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineAway("engine.bad_reply", f"{url}: no reply of the generate route: {reply[:200]!r}") from error
    if generation.finish_reason in ("abort", "error"):
        raise EngineAway("engine.aborted", f"{url}: the engine gave the request up ({generation.finish_reason})")
    return generation


def _version(text: str) -> int:
    """Versions travel as text; anything but a number ("default": weights nobody published) is version 0."""
    return int(text) if text.isdecimal() else 0


def _refusal(url: str, status: int, reply: bytes) -> EngineAway | CallRefused | PromptTooLong:
    detail = f"{url}: status {status}: {_message(reply)}"[:500]
    if status != HTTPStatus.BAD_REQUEST:
        return EngineAway("engine.failed", detail)
    if _message(reply).startswith(_TOO_LONG):
        return PromptTooLong("engine.prompt_too_long", detail)
    return CallRefused("engine.refused", detail, status=HTTPStatus.INTERNAL_SERVER_ERROR)


def _message(reply: bytes) -> str:
    try:
        return str(orjson.loads(reply)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return repr(reply[:200])
