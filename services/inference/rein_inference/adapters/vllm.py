"""One vLLM server as a child process, and its HTTP control calls.

Every call's body is read, not only its status: vLLM answers 200 to calls that did not do what was asked. Anything
unexpected is EngineRefused.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from rein_inference.config import EngineSettings
from rein_inference.errors import EngineLost, EngineRefused
from rein_inference.ports import Load
from rein_service.clock import Clock

HEALTH_CHECK_S = 0.5

Json = Mapping[str, Any]


class VllmEngine:
    """Async context manager; the process ends with it."""

    def __init__(self, command: Sequence[str], *, settings: EngineSettings, clock: Clock) -> None:
        self._command = command
        self._settings = settings
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._http = httpx.AsyncClient(base_url=self._settings.url, timeout=self._settings.call_s, trust_env=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
        await self._http.aclose()

    async def start(self) -> None:
        await self.stop()
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        deadline_s = self._clock.monotonic() + self._settings.start_s
        while not await self._is_healthy():
            if self._process.returncode is not None:
                raise EngineLost(f"{await self.ended()} while starting; its output stands above in this log")
            if self._clock.monotonic() > deadline_s:
                raise EngineLost(f"the engine did not answer within {self._settings.start_s} s (key engine.start_s)")
            await self._clock.sleep(HEALTH_CHECK_S)
        await self._post("/init_weight_transfer_engine", json={"init_info": {}}, answer="Weight transfer initialized")

    async def ended(self) -> str:
        if self._process is None:
            return "the engine was never started"
        status = await self._process.wait()
        return f"the engine's process ended with status {status}"

    async def stop(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None

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
        figures = _figures(await self._text("GET", "/metrics"))
        return Load(
            num_running=int(figures.get("vllm:num_requests_running", 0)),
            num_waiting=int(figures.get("vllm:num_requests_waiting", 0)),
        )

    async def _is_healthy(self) -> bool:
        try:
            return (await self._http.get("/health", timeout=HEALTH_CHECK_S * 10)).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

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
