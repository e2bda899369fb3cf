"""A node (fake engine) and the real weight server process, over real gRPC: seeded, updated, and through kill -9."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rein.v1 import weights_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_inference.adapters.memory import SharedMemory
from rein_inference.config import EngineSettings, InferenceConfig
from rein_inference.fake_engine import FakeEngine, logprobs_under
from rein_inference.service import InferenceNode
from rein_service.clock import SystemClock
from rein_service.testing import eventually
from rein_transfer.publisher import WeightPublisher
from rein_transfer.subscriber import WeightSubscriber

PROBE = [3, 1, 4, 1, 5]
PATIENCE_S = 60.0


def content(version: int) -> bytes:
    return bytes([version]) * 3_000_000


class Server:
    """The weight server as its own process."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._config = folder / "weightserver.toml"
        self._config.write_text(f'folder = "{folder / "state"}"\nlisten.port = {port}\n')
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "rein_weightserver.main", "--config", str(self._config)]
        self._child = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    async def publish(self, version: int) -> None:
        probe = pb.Probe(token_ids=PROBE, logprobs=logprobs_under(content(version), PROBE), tolerance=1e-3)
        async with WeightPublisher(self.address, patience_s=PATIENCE_S) as publisher:
            fields = pb.WeightManifest(run="run", version=version, probe=probe)
            await publisher.publish(fields, weights=content(version))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


async def test_a_node_follows_the_real_server_through_its_death(server: Server, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    engine = FakeEngine()
    config = InferenceConfig(model=tmp_path, memory=memory, reconnect_s=0.05, engine=EngineSettings(backoff_s=0.05))
    async with WeightSubscriber(server.address) as feed:
        node = InferenceNode(
            bus=MemoryBus(MemoryBroker()),
            engine=engine,
            feed=feed,
            memory=SharedMemory(memory, node=config.node),
            clock=SystemClock(),
            config=config,
        )
        draining = asyncio.Event()
        living = asyncio.ensure_future(node.run(draining))

        def serves(version: int) -> bool:
            return node.standing.is_ready and node.standing.weights.version == version

        await server.publish(1)
        await eventually(lambda: serves(1), within_s=PATIENCE_S)
        server.kill()
        assert serves(1)
        server.start()
        await server.publish(2)
        await eventually(lambda: serves(2), within_s=PATIENCE_S)
        assert engine.updates == [1, 2]
        assert engine.weights == content(2)
        engine.die()
        await eventually(lambda: engine.num_starts == 2 and serves(2), within_s=PATIENCE_S)
        draining.set()
        await living
        assert list(memory.iterdir()) == []
