"""For tests with the real engine: a tiny random Llama, the learner's view of it, and a whole node around an engine."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rein.v1 import events_pb2 as ev
from rein.v1 import weights_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_inference.adapters.command import engine_command
from rein_inference.adapters.memory import SharedMemory
from rein_inference.adapters.vllm import VllmEngine
from rein_inference.config import EngineSettings, InferenceConfig
from rein_inference.service import InferenceNode
from rein_service.clock import SystemClock
from rein_service.testing import eventually
from rein_transfer.manifest import completed
from rein_transfer.memory import MemoryFeed
from rein_transfer.tensors import write_tensors

VOCABULARY = 512
PROBE = [(7 * index) % 500 + 2 for index in range(48)]
TOLERANCE = 1e-3
START_S = 600.0


def tiny_llama(*, seed: int, is_tied: bool) -> LlamaForCausalLM:
    """Head size 64: the CPU attention refuses small ones."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=is_tied,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    made: Any = LlamaForCausalLM
    model: LlamaForCausalLM = made(config).float().eval()
    return model


def save_folder(model: LlamaForCausalLM, folder: Path) -> None:
    model.save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<bos>": 0, "<eos>": 1} | {letter: index + 2 for index, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>").save_pretrained(folder)


def logprobs_of(model: LlamaForCausalLM, token_ids: list[int]) -> list[float]:
    """Of token_ids[1:], as the learner computes them."""
    with torch.no_grad():
        logits = model(torch.tensor([token_ids])).logits[0, :-1].float()
    chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(token_ids[1:])[:, None])
    return [float(each) for each in chosen[:, 0]]


@dataclass
class Version:
    """One version as the learner publishes it."""

    model: LlamaForCausalLM
    manifest: pb.WeightManifest
    path: Path


def make_version(model: LlamaForCausalLM, *, version: int, folder: Path, run: str = "run") -> Version:
    path = folder / f"v{version}.safetensors"
    write_tensors(model.state_dict(), path=path)
    probe = pb.Probe(token_ids=PROBE, logprobs=logprobs_of(model, PROBE), tolerance=TOLERANCE)
    fields = pb.WeightManifest(run=run, version=version, probe=probe)
    return Version(model, completed(fields, weights=path, chunk_bytes=64 * 1024), path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Rig:
    """A running node and what is around it."""

    node: InferenceNode
    feed: MemoryFeed
    engine: VllmEngine
    http: httpx.AsyncClient
    broker: MemoryBroker
    memory: Path

    async def publish(self, version: Version) -> None:
        """Offer it and wait until the node serves it."""
        self.feed.offer(version.manifest, weights=version.path)
        await self.until_ready(version.manifest.version)

    async def until_ready(self, version: int) -> None:
        await eventually(lambda: self.is_ready(version), within_s=START_S)

    def is_ready(self, version: int) -> bool:
        return self.node.standing.is_ready and self.node.standing.weights.version == version

    async def until_fenced(self, code: str) -> None:
        await eventually(lambda: (fence := self.node.standing.fence) and fence.code == code, within_s=START_S)

    async def generate(self, token_ids: list[int], **sampling: Any) -> dict[str, Any]:
        sampling_params = {"max_tokens": 1, "temperature": 1.0, "logprobs": 0} | sampling
        body = {"token_ids": token_ids, "sampling_params": sampling_params}
        response = await self.http.post("/inference/v1/generate", json=body)
        return dict(response.raise_for_status().json())

    def last_report(self) -> ev.NodeReported:
        log = self.broker.read((ev.NodeReported, 0))
        return ev.NodeReported.FromString(log[-1].value)


@asynccontextmanager
async def running_node(model: LlamaForCausalLM, *, folder: Path) -> AsyncIterator[Rig]:
    save_folder(model, folder / "model")
    memory = folder / "memory"
    memory.mkdir()
    (memory / "rein-node-0-7.safetensors").write_bytes(b"left by a killed predecessor")
    engine_settings = EngineSettings(
        port=free_port(), max_context_tokens=4096, kv_cache_bytes=64 << 20, start_s=START_S, backoff_s=0.1
    )
    config = InferenceConfig(
        model=folder / "model", engine=engine_settings, memory=memory, reconnect_s=0.1, report_s=1.0
    )
    broker = MemoryBroker()
    feed = MemoryFeed()
    async with (
        MemoryBus(broker) as bus,
        VllmEngine(engine_command(config), settings=engine_settings, clock=SystemClock()) as engine,
        httpx.AsyncClient(base_url=engine_settings.url, timeout=120.0, trust_env=False) as http,
    ):
        node = InferenceNode(
            bus=bus,
            engine=engine,
            feed=feed,
            memory=SharedMemory(memory, node=config.node),
            clock=SystemClock(),
            config=config,
        )
        draining = asyncio.Event()
        living = asyncio.ensure_future(node.run(draining))
        try:
            yield Rig(node, feed, engine, http, broker, memory)
        finally:
            draining.set()
            await living
