"""The gateway before a real vLLM that serves the demo's policy: the generate route is as the gateway believes it."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession

from rein.v1 import events_pb2 as ev
from rein_bus.localbroker import free_ports
from rein_gateway.actors import Claude, Mini
from rein_gateway.testing import Stage, open_stage

POLICY = Path(__file__).parents[4] / "deploy" / "demo" / "policy"

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def engine_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    (port,) = free_ports(1)
    flags = f"--model {POLICY} --served-model-name policy --host 127.0.0.1 --port {port} --dtype float32"
    more = "--logprobs-mode processed_logprobs --generation-config vllm --kv-cache-memory-bytes 67108864"
    switches = "--max-model-len 2048 --enforce-eager --enable-scale-out"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *f"{flags} {more} {switches}".split()]
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=output, stderr=output)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture
async def stage(engine_url: str) -> AsyncIterator[Stage]:
    async with open_stage(POLICY, settings={"http": {"stream_patience_s": 30.0}}) as stage:
        await until_healthy(stage.client, engine_url)
        await stage.report(version=2, engine_url=engine_url, max_context_tokens=2048)
        yield stage


async def until_healthy(client: ClientSession, url: str) -> None:
    while True:
        try:
            async with client.get(url + "/health") as response:
                if response.status == 200:
                    return
        except ClientConnectionError:
            await asyncio.sleep(0.5)


async def num_running(stage: Stage, url: str) -> int:
    async with stage.client.get(url + "/metrics") as response:
        found = re.search(r"^vllm:num_requests_running\{[^}]*\} ([0-9.]+)", await response.text(), re.MULTILINE)
    assert found
    return int(float(found[1]))


@pytest.mark.parametrize("harness", [Claude, Mini])
async def test_samples_of_the_real_engine_are_whole_and_chained(stage: Stage, harness: type[Claude | Mini]) -> None:
    """Everything fits but the version: no weights were published to this engine, and the turns say so."""
    conversation = harness(stage)
    for _ in range(3):
        assert (await conversation.ask()).status == 200
        conversation.tell("    if a <= b:")
    turns = stage.log(ev.TurnCaptured)
    assert [turn.parent_turn if turn.HasField("parent_turn") else None for turn in turns] == [None, 0, 1]
    for turn in turns:
        assert turn.untrainable == "tokens.version_unknown"
        assert len(turn.sampled_ids) == len(turn.logprobs) > 0
        assert turn.versions[-1].end == len(turn.sampled_ids)
        assert all(value <= 0 for value in turn.logprobs)


async def test_an_overlong_prompt_is_noticed_by_the_engine_too(stage: Stage, engine_url: str) -> None:
    await stage.report(version=3, engine_url=engine_url, max_context_tokens=0)
    reply = await Claude(stage, task="if a <= b: " * 1000).ask()
    assert (reply.status, reply.json["error"]["message"][:18]) == (400, "prompt is too long")


async def test_a_hang_up_aborts_the_generation_in_the_engine(stage: Stage, engine_url: str) -> None:
    """Case B9."""
    grant = stage.grant(temperature=2.0)  # as hot as vLLM takes: long samples
    calls = [asyncio.create_task(Mini(stage, task=f"task {number}", grant=grant).ask()) for number in range(16)]
    while await num_running(stage, engine_url) == 0:
        assert not all(call.done() for call in calls)
    for call in calls:
        call.cancel()
    async with asyncio.timeout(10):
        while await num_running(stage, engine_url):
            continue
    assert len(stage.log(ev.TurnCaptured)) < len(calls)
