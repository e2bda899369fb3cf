"""vLLM's HTTP control calls.

Every call's body is read, not only its status: vLLM answers 200 to calls that did not do what was asked. Anything
unexpected is EngineRefused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from rein_inference.errors import EngineRefused
from rein_inference.ports import Load

Json = Mapping[str, Any]

HEALTH_S = 5.0


class EngineCalls:
    """Over a client whose base address is the engine's."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def is_healthy(self) -> bool:
        try:
            return (await self._http.get("/health", timeout=HEALTH_S)).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    async def init_updates(self) -> None:
        await self._post("/init_weight_transfer_engine", json={"init_info": {}}, answer="Weight transfer initialized")

    async def update(self, path: Path, *, version: int) -> None:
        label = str(version)
        await self._post("/pause", params={"mode": "keep", "clear_cache": "true"}, answer="paused")
        await self._post("/start_weight_update", answer="Weight update started")
        await self._post("/update_weights", json={"update_info": {"path": str(path)}}, answer="Weights updated")
        await self._post("/finish_weight_update", json={"weight_version": label}, answer="Weight update finished")
        await self._post("/resume", answer="resumed")
        info = await self._call("GET", "/weight_info")
        if info.get("weight_version") != label:
            raise EngineRefused("weight_info", f"it serves {info.get('weight_version')!r} after an update to {label!r}")

    async def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        reply = await self._call(
            "POST",
            "/inference/v1/generate",
            json={
                "token_ids": list(token_ids),
                "sampling_params": {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0},
            },
        )
        try:
            entries = reply["prompt_logprobs"][1:]
            return [float(entry[str(token)]["logprob"]) for token, entry in zip(token_ids[1:], entries, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            raise EngineRefused("generate", f"no log-probability for each prompt token ({error!r})") from error

    async def load(self) -> Load:
        figures = _figures(await self._text("GET", "/metrics", timeout=HEALTH_S))
        return Load(
            num_running=int(figures.get("vllm:num_requests_running", 0)),
            num_waiting=int(figures.get("vllm:num_requests_waiting", 0)),
        )

    async def _post(self, path: str, *, answer: str, **request: Any) -> None:
        """The call must answer with this status or message."""
        body = await self._call("POST", path, **request)
        if answer not in (body.get("status"), body.get("message")):
            raise EngineRefused(path, f"it answered {body}")

    async def _call(self, method: str, path: str, **request: Any) -> Json:
        text = await self._text(method, path, **request)
        try:
            body = httpx.Response(200, text=text).json()
        except ValueError as error:
            raise EngineRefused(path, f"it answered {text[:200]!r}") from error
        if not isinstance(body, dict):
            raise EngineRefused(path, f"it answered {text[:200]!r}")
        return body

    async def _text(self, method: str, path: str, **request: Any) -> str:
        try:
            response = await self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise EngineRefused(path, repr(error)) from error
        if response.status_code != httpx.codes.OK:
            raise EngineRefused(path, f"status {response.status_code}: {response.text[:500]}")
        return response.text


def _figures(exposition: str) -> dict[str, float]:
    """Sum of each metric over its labels."""
    figures: dict[str, float] = {}
    for line in exposition.splitlines():
        if line.startswith("vllm:num_requests_"):
            name, _, value = line.replace("{", " ", 1).partition(" ")
            figures[name] = figures.get(name, 0.0) + float(value.rsplit(" ", 1)[-1])
    return figures
