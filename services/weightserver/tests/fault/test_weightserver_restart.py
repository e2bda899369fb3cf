"""What a killed weight server leaves behind, and what the next one makes of it."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from rein.v1 import weights_pb2 as pb
from rein.v1 import weights_pb2_grpc
from rein_service import SetupError
from rein_service.clock import FakeClock
from rein_service.testing import eventually
from rein_transfer.manifest import completed, frames_of
from rein_transfer.publisher import WeightPublisher
from rein_transfer.wire import Chunk
from rein_weightserver.adapters.folder import FolderStore
from rein_weightserver.domain.keeping import Pin
from rein_weightserver.service import WeightServer

CONTENT = b"w" * 5000


def keep(store: FolderStore, *, version: int, run: str = "run") -> pb.WeightManifest:
    weights = CONTENT + bytes([version])
    manifest = completed(pb.WeightManifest(run=run, version=version), weights=weights, chunk_bytes=1000)
    with store.arrival(manifest) as arrival:
        for frame in frames_of(manifest, weights=weights):
            if (chunk := pb.WeightFrame.FromString(frame).chunk).data:
                arrival.write(Chunk(chunk.offset, memoryview(chunk.data)))
        store.keep(arrival)
    return manifest


def server_of(store: FolderStore) -> WeightServer:
    return WeightServer(store=store, clock=FakeClock(), stage_s=1.0, keep_versions=4, tick_s=1.0)


async def test_versions_and_rollbacks_survive(tmp_path: Path) -> None:
    async with FolderStore(tmp_path) as store:
        kept = [keep(store, version=version) for version in (1, 2)]
        store.write_newest_run("run")
        store.write_pin("run", Pin(version=1, newest=2))
    async with FolderStore(tmp_path) as store:
        assert list(store.versions("run").values()) == kept
        listed = server_of(store).list("")
        assert (len(listed.versions), listed.current) == (2, 1)


async def test_half_written_and_damaged_files_are_removed(tmp_path: Path) -> None:
    async with FolderStore(tmp_path) as store:
        for version in (1, 2, 3):
            keep(store, version=version)
    run = tmp_path / "run"
    (run / "2.safetensors").write_bytes(b"x" + CONTENT)
    (run / "3.manifest").unlink()
    (run / "4.safetensors.abc.part").write_bytes(b"half")
    async with FolderStore(tmp_path) as store:
        assert list(store.versions("run")) == [1]
        assert sorted(path.name for path in run.iterdir()) == ["1.manifest", "1.safetensors"]


async def test_a_folder_has_one_server(tmp_path: Path) -> None:
    async with FolderStore(tmp_path):
        with pytest.raises(SetupError, match="stop the weight server"):
            FolderStore(tmp_path)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator["Process"]:
    process = Process(tmp_path)
    yield process
    process.kill()


class Process:
    """The real service."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.state = folder / "state"
        self._config = folder / "weightserver.toml"
        self._config.write_text(f'folder = "{self.state}"\nlisten.port = {port}\n')
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "rein_weightserver.main", "--config", str(self._config)]
        self._child = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._child:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()

    def terminate(self) -> int:
        assert self._child
        self._child.terminate()
        return self._child.wait(timeout=30)


async def test_a_publish_outlives_kill_9_between_chunks(process: Process) -> None:
    process.start()
    cut = asyncio.Event()
    manifest = completed(pb.WeightManifest(run="run", version=1), weights=CONTENT, chunk_bytes=1000)

    async def half() -> AsyncIterator[pb.WeightFrame]:
        for frame in list(frames(manifest))[:3]:
            yield frame
        await cut.wait()

    async with grpc.aio.insecure_channel(process.address) as channel:
        stub: weights_pb2_grpc.WeightServiceAsyncStub = weights_pb2_grpc.WeightServiceStub(channel)
        call = asyncio.ensure_future(_result(stub, half()))
        await eventually(lambda: list(process.state.rglob("*.part")), within_s=60.0)
        process.kill()
        cut.set()
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    assert list(process.state.rglob("*.part"))
    process.start()
    async with WeightPublisher(process.address) as publisher:
        await publisher.publish(pb.WeightManifest(run="run", version=1), weights=CONTENT)
    assert not list(process.state.rglob("*.part"))
    assert process.terminate() == 0


async def _result(stub: "weights_pb2_grpc.WeightServiceAsyncStub", stream: AsyncIterator[pb.WeightFrame]) -> object:
    return await stub.Publish(stream, wait_for_ready=True)


def frames(manifest: pb.WeightManifest) -> Iterator[pb.WeightFrame]:
    return (pb.WeightFrame.FromString(frame) for frame in frames_of(manifest, weights=CONTENT))
