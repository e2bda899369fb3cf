"""A node with the real engine: in-place updates of a model with a tied head. One engine start."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rein.v1 import events_pb2 as ev
from rein_inference.testing import PROBE, Rig, Version, logprobs_of, make_version, running_node, tiny_llama
from rein_service.testing import eventually

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

EXACT = 1e-4
OTHER = [0] + [(11 * index) % 500 + 2 for index in range(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    folder = tmp_path_factory.mktemp("node")
    async with running_node(tiny_llama(seed=0, is_tied=True), folder=folder) as running:
        yield running


def version_of(number: int, folder_factory: pytest.TempPathFactory) -> Version:
    model = tiny_llama(seed=number, is_tied=True)
    return make_version(model, version=number, folder=folder_factory.mktemp("version"))


def gap(ours: list[float], learners: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(ours, learners, strict=True))


async def test_a_fresh_node_is_fenced_until_the_first_version_is_confirmed(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await rig.until_fenced("weights.none")
    assert not list(rig.memory.iterdir())
    await eventually(lambda: rig.last_report().failure.code == "weights.none")
    version = version_of(1, tmp_path_factory)
    await rig.publish(version)
    assert gap(await rig.engine.logprobs(OTHER), logprobs_of(version.model, OTHER)) < EXACT
    await eventually(lambda: rig.feed.states(1) == ["staged", "live"])
    await eventually(lambda: rig.last_report().state == ev.NODE_STATE_READY)
    assert (rig.last_report().version, rig.last_report().run) == (1, "run")
    assert not list(rig.memory.iterdir())


async def test_an_update_gives_the_new_weights_and_a_cold_cache(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await rig.generate(OTHER)
    assert (await rig.generate(OTHER))["usage"]["prompt_tokens_details"]["cached_tokens"] > 200
    version = version_of(2, tmp_path_factory)
    await rig.publish(version)
    after = await rig.generate(OTHER)
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert after["choices"][0]["weight_versions"] == [{"version": "2", "start": 0, "end": 1}]
    assert gap(await rig.engine.logprobs(OTHER), logprobs_of(version.model, OTHER)) < EXACT


async def test_a_request_that_lives_across_an_update_carries_both_versions(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    version = version_of(3, tmp_path_factory)
    running = asyncio.ensure_future(rig.generate(PROBE, max_tokens=3000, ignore_eos=True))
    await eventually(lambda: rig.last_report().num_running == 1, within_s=30.0)
    before = rig.node.standing.weights.version
    await rig.publish(version)
    choice = (await running)["choices"][0]
    spans = choice["weight_versions"]
    assert [span["version"] for span in spans] == [str(before), "3"]
    token_ids, logprobs = choice["token_ids"], [each["logprob"] for each in choice["logprobs"]["content"]]
    first = spans[1]["start"]
    whole = PROBE + token_ids
    learners = logprobs_of(version.model, whole)[len(PROBE) - 1 + first :]
    assert gap(logprobs[first:], learners) < EXACT


async def test_the_same_version_again_is_acknowledged_and_not_applied_again(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    version = version_of(4, tmp_path_factory)
    await rig.publish(version)
    rig.feed.offer(version.manifest, weights=version.path)
    await eventually(lambda: rig.feed.states(4) == ["staged", "live"] * 2)
    assert rig.is_ready(4)
    assert gap(await rig.engine.logprobs(PROBE), logprobs_of(version.model, PROBE)) < EXACT
