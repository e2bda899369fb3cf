"""A node with the real engine, untied head: wrong weights and a killed engine. The engine is started three times."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import torch
from transformers import LlamaForCausalLM

from rein_inference.testing import Rig, Version, logprobs_of, make_version, running_node, tiny_llama
from rein_service.testing import eventually
from rein_transfer.manifest import completed
from rein_transfer.tensors import write_tensors

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]

PROMPT = [(5 * index) % 500 + 2 for index in range(200)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    folder = tmp_path_factory.mktemp("node")
    async with running_node(tiny_llama(seed=0, is_tied=False), folder=folder) as running:
        yield running


def perturbed(version: Version, *, path: Path) -> Version:
    """The learner's probe, but one tensor of the file is not the learner's."""
    tensors = dict(version.model.state_dict())
    name = "model.layers.1.mlp.down_proj.weight"
    tensors[name] = tensors[name] + 0.3 * torch.randn_like(tensors[name])
    write_tensors(tensors, path=path)
    return Version(version.model, completed(version.manifest, weights=path), path)


async def is_exact(rig: Rig, model: LlamaForCausalLM) -> bool:
    pairs = zip(await rig.engine.logprobs(PROMPT), logprobs_of(model, PROMPT), strict=True)
    return all(abs(ours - learners) < 1e-4 for ours, learners in pairs)


async def test_an_untied_head_is_updated(rig: Rig, tmp_path: Path) -> None:
    for number in (1, 2):
        version = make_version(tiny_llama(seed=number, is_tied=False), version=number, folder=tmp_path)
        await rig.publish(version)
        assert await is_exact(rig, version.model)


async def test_a_tensor_that_is_not_the_learners_fences_the_node_until_a_right_version_comes(
    rig: Rig, tmp_path: Path
) -> None:
    right = make_version(tiny_llama(seed=3, is_tied=False), version=3, folder=tmp_path)
    wrong = perturbed(right, path=tmp_path / "wrong.safetensors")
    rig.feed.offer(wrong.manifest, weights=wrong.path)
    await rig.until_fenced("weights.probe_disagrees")
    await eventually(lambda: rig.last_report().failure.code == "weights.probe_disagrees")
    assert rig.last_report().version == 0
    await eventually(lambda: rig.feed.states(3)[:2] == ["staged", "failed"])
    right.manifest.version = 4
    await rig.publish(right)
    assert await is_exact(rig, right.model)


async def test_a_killed_engine_fences_the_node_which_recovers_by_itself(rig: Rig) -> None:
    version = rig.node.standing.weights.version
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith("VLLM::EngineCor"):
            process.kill()
    await rig.until_fenced("engine.lost")
    assert rig.node.standing.weights.version == 0
    await rig.until_ready(version)
    assert (await rig.generate(PROMPT))["choices"][0]["weight_versions"][0]["version"] == str(version)
