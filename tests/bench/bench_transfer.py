"""How fast a version reaches a node's memory, against plain one-stream protobuf-bytes gRPC transfers of tensors.

All go from a server process to a node process over loopback TCP into memory. Ours is the real weight server and the
client of a node; bytes count as arrived when their digest is verified. The plain ones have tensors (numpy arrays) on
both sides, a generated stub, protobuf's own (de)serialisers and no digest: one message per tensor, as one writes it
first, and, harder to beat, messages of the size of our chunks. Every process is fresh and warmed up, they take turns,
medians are compared; one JSON line per plain transfer.
"""

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import grpc

from rein.v1 import weights_pb2 as pb
from rein.v1 import weights_pb2_grpc
from rein_transfer.buffers import reuse_buffers
from rein_transfer.landing import Landing
from rein_transfer.manifest import CHUNK_BYTES
from rein_transfer.publisher import WeightPublisher
from rein_transfer.rpc import SERVICE
from rein_transfer.subscriber import WeightSubscriber
from rein_transfer.wire import Chunk

NUM_TENSORS, TENSOR_BYTES = 32, 8 * 1024 * 1024
NUM_WARM_UPS, NUM_RUNS = 1, 12
MEMORY = Path("/dev/shm")
ANY_SIZE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

#: Each plain transfer: bytes of one message, and how many times faster ours has to be.
PLAIN = {"one message per tensor": (TENSOR_BYTES, 2.0), "one message per chunk": (CHUNK_BYTES, 1.0)}


async def serve_plain(port: str, weights: str, message_bytes: str) -> None:
    """Tensors as protobuf messages with a bytes field."""
    from safetensors.numpy import load_file

    tensors = list(load_file(weights).values())
    step = int(message_bytes)

    async def subscribe(request: pb.SubscribeRequest, context: object) -> AsyncIterator[pb.WeightFrame]:
        for tensor in tensors:
            for offset in range(0, tensor.nbytes, step):
                part = tensor.view("u1")[offset : offset + step]
                yield pb.WeightFrame(chunk=pb.WeightChunk(offset=offset, data=part.tobytes()))

    method = grpc.unary_stream_rpc_method_handler(
        subscribe,
        request_deserializer=pb.SubscribeRequest.FromString,
        response_serializer=pb.WeightFrame.SerializeToString,
    )
    server = grpc.aio.server(options=ANY_SIZE)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Subscribe": method}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


async def receive_plain(port: str, target: str) -> None:
    """Each line in starts a run; its seconds go out."""
    import numpy as np

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=ANY_SIZE) as channel:
        await channel.channel_ready()
        stub: weights_pb2_grpc.WeightServiceAsyncStub = weights_pb2_grpc.WeightServiceStub(channel)
        for _ in sys.stdin:
            memory = np.memmap(target, dtype="u1", mode="w+", shape=(NUM_TENSORS * TENSOR_BYTES,))
            started_s, place = time.perf_counter(), 0
            async for frame in stub.Subscribe(pb.SubscribeRequest(node="bench")):
                part = np.frombuffer(frame.chunk.data, dtype="u1")
                memory[place : place + part.size] = part
                place += part.size
            print(time.perf_counter() - started_s, flush=True)


async def receive_ours(port: str, target: str) -> None:
    """The same, as a node receives."""
    reuse_buffers()
    async with WeightSubscriber(f"127.0.0.1:{port}") as subscriber:
        await subscriber.confirm(pb.ConfirmRequest(node="bench"))  # connects
        for _ in sys.stdin:
            started_s = time.perf_counter()
            frames = subscriber.frames(pb.SubscribeRequest(node="bench"))
            manifest = await anext(frames)
            assert isinstance(manifest, pb.WeightManifest)
            with Landing(Path(target), manifest=manifest) as landing:
                while not landing.is_complete:
                    chunk = await anext(frames)
                    assert isinstance(chunk, Chunk)
                    landing.write(chunk)
                landing.finish(is_durable=False)
            print(time.perf_counter() - started_s, flush=True)
            await frames.aclose()


ROLES: dict[str, Callable[..., Coroutine[None, None, None]]] = {
    "serve_plain": serve_plain,
    "receive_plain": receive_plain,
    "receive_ours": receive_ours,
}


def command(role: str, *arguments: object) -> list[str]:
    return [sys.executable, __file__, role, *map(str, arguments)]


@contextmanager
def process(*words: str) -> Iterator[None]:
    child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.kill()
        child.wait()


class Receiver:
    """A node's process, receiving on request."""

    def __init__(self, role: str, *, port: int, target: Path) -> None:
        self._child = subprocess.Popen(
            command(role, port, target), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._child.communicate()

    def run(self) -> float:
        """Seconds of one transfer."""
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write("go\n")
        return float(self._child.stdout.readline())


def make_tensors(path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    size = TENSOR_BYTES // 4
    tensors = {f"layer.{n}.weight": random.standard_normal(size, dtype=np.float32) for n in range(NUM_TENSORS)}
    save_file(tensors, path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def publish(port: int, *, weights: Path) -> None:
    async with WeightPublisher(f"127.0.0.1:{port}") as publisher:
        await publisher.publish(pb.WeightManifest(run="bench", version=1), weights=weights)


def compare(scratch: Path, memory: Path) -> dict[str, float]:
    """GB/s of ours and of each plain transfer."""
    weights = scratch / "weights.safetensors"
    make_tensors(weights)
    ports = {name: free_port() for name in ("ours", *PLAIN)}
    config = scratch / "weightserver.toml"
    config.write_text(f'folder = "{scratch / "state"}"\nlisten.port = {ports["ours"]}\n')
    with ExitStack() as running:
        running.enter_context(process(sys.executable, "-m", "rein_weightserver.main", "--config", str(config)))
        for name, (message_bytes, _) in PLAIN.items():
            running.enter_context(process(*command("serve_plain", ports[name], weights, message_bytes)))
        asyncio.run(publish(ports["ours"], weights=weights))
        nodes = {
            name: running.enter_context(
                Receiver("receive_ours" if name == "ours" else "receive_plain", port=port, target=memory / str(port))
            )
            for name, port in ports.items()
        }
        rounds = [{name: node.run() for name, node in nodes.items()} for _ in range(NUM_WARM_UPS + NUM_RUNS)]
    size_gb = NUM_TENSORS * TENSOR_BYTES / 1e9
    return {name: size_gb / statistics.median(each[name] for each in rounds[NUM_WARM_UPS:]) for name in ports}


def report(value: float, *, baseline: float, against: str, limit: float) -> None:
    line = {
        "bench": "transfer",
        "metric": f"push into a node's memory, digest verified; baseline: plain protobuf, {against}",
        "value": round(value, 3),
        "unit": "GB/s",
        "baseline": round(baseline, 3),
        "ratio": round(value / baseline, 2),
        "limit": limit,
        "holds": value >= limit * baseline,
    }
    print(json.dumps(line), flush=True)


def main() -> int:
    if len(sys.argv) > 1:
        asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))
        return 0
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory(dir=MEMORY) as memory:
        speeds = compare(Path(scratch), Path(memory))
    for against, (_, limit) in PLAIN.items():
        report(speeds["ours"], baseline=speeds[against], against=against, limit=limit)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
