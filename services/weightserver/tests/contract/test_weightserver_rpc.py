"""The weight server over real gRPC, by the fast path and by plain generated stubs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rein.v1 import weights_pb2 as pb
from rein.v1 import weights_pb2_grpc
from rein_service.clock import FakeClock
from rein_service.testing import eventually
from rein_transfer.errors import LeftOut, TransferRejected, TransferTransient, VersionTaken
from rein_transfer.manifest import completed, frames_of
from rein_transfer.publisher import WeightPublisher
from rein_transfer.subscriber import WeightSubscriber
from rein_transfer.wire import Chunk
from rein_weightserver.adapters.folder import FolderStore
from rein_weightserver.adapters.rpc import listening
from rein_weightserver.service import WeightServer

STAGE_S = 30.0
CHUNK_BYTES = 1000


def content(version: int) -> bytes:
    return bytes([version]) * 3500


def fields(version: int, *, run: str = "run") -> pb.WeightManifest:
    return pb.WeightManifest(run=run, version=version, probe=pb.Probe(token_ids=[1, 2], logprobs=[-0.1]))


class Stack:
    """A server on a free port, with a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()

    @asynccontextmanager
    async def up(self) -> AsyncIterator["Stack"]:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(FolderStore(self.folder))
            self.server = WeightServer(store=store, clock=self.clock, stage_s=STAGE_S, keep_versions=2, tick_s=1.0)
            port = await stack.enter_async_context(listening(self.server, host="127.0.0.1", port=0))
            self.address = f"127.0.0.1:{port}"
            self.draining = asyncio.Event()
            watching = asyncio.ensure_future(self.server.run(self.draining))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(self.address))
            self.channel = channel
            self.plain: weights_pb2_grpc.WeightServiceAsyncStub = weights_pb2_grpc.WeightServiceStub(channel)
            yield self
            self.draining.set()
            await watching

    async def publish(self, version: int, *, run: str = "run") -> pb.WeightManifest:
        async with WeightPublisher(self.address, chunk_bytes=CHUNK_BYTES) as publisher:
            return await publisher.publish(fields(version, run=run), weights=content(version))

    def states(self) -> dict[str, tuple[int, str]]:
        return {n.node: (n.version, pb.ConfirmState.Name(n.state)) for n in self.server.list("").nodes}


class FakeNode:
    """Subscribes, lands versions in memory, confirms; switched off step by step."""

    def __init__(self, stack: Stack, name: str, *, stages: bool = True) -> None:
        self.name = name
        self.stages = stages
        self.landed: dict[int, bytes] = {}
        self.served = ""
        self.switched: list[int] = []
        self.manifests: list[int] = []
        self.error: Exception | None = None
        self._stack = stack

    @asynccontextmanager
    async def up(self, *, have: pb.WeightManifest | None = None) -> AsyncIterator["FakeNode"]:
        request = pb.SubscribeRequest(node=self.name)
        if have:
            self.served = request.have_digest = have.digest
            request.have_version = have.version
        async with WeightSubscriber(self._stack.address) as subscriber:
            following = asyncio.ensure_future(self._follow(subscriber, request))
            await eventually(lambda: self.name in self._stack.states())
            yield self
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, subscriber: WeightSubscriber, request: pb.SubscribeRequest) -> None:
        manifest = pb.WeightManifest()
        try:
            async for frame in subscriber.frames(request):
                match frame:
                    case pb.WeightManifest():
                        manifest = frame
                        self.manifests.append(frame.version)
                        self.landed[frame.version] = b""
                    case Chunk():
                        self.landed[manifest.version] += bytes(frame.data)
                    case pb.WeightSwitch():
                        self.switched.append(frame.version)
                        self.served = frame.digest
                        await self._confirm(subscriber, manifest, pb.CONFIRM_STATE_LIVE)
                is_had = isinstance(frame, pb.WeightManifest) and frame.digest == self.served
                is_here = len(self.landed.get(manifest.version, b"")) == manifest.size_bytes
                if self.stages and (is_had or (is_here and isinstance(frame, Chunk))):
                    await self._confirm(subscriber, manifest, pb.CONFIRM_STATE_STAGED)
        except TransferTransient as error:
            self.error = error

    async def _confirm(
        self, subscriber: WeightSubscriber, manifest: pb.WeightManifest, state: "pb.ConfirmState.ValueType"
    ) -> None:
        await subscriber.confirm(
            pb.ConfirmRequest(node=self.name, version=manifest.version, digest=manifest.digest, state=state)
        )


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with Stack(tmp_path / "weights").up() as running:
        yield running


async def test_two_nodes_get_the_bytes_and_switch_together(stack: Stack) -> None:
    async with FakeNode(stack, "a").up() as a, FakeNode(stack, "b").up() as b:
        await stack.publish(1)
        await eventually(lambda: a.switched == b.switched == [1])
        assert a.landed == b.landed == {1: content(1)}
        await eventually(lambda: set(stack.states().values()) == {(1, "CONFIRM_STATE_LIVE")})
        await stack.publish(2)
        await eventually(lambda: a.switched == b.switched == [1, 2])
        assert stack.server.list("run").current == 2


async def test_a_plain_generated_stub_and_the_fast_path_understand_each_other(stack: Stack) -> None:
    manifest = completed(fields(1), weights=content(1), chunk_bytes=CHUNK_BYTES)
    frames = [pb.WeightFrame.FromString(frame) for frame in frames_of(manifest, weights=content(1))]
    response = await stack.plain.Publish(iter(frames))
    assert response.version == 1
    received = stack.plain.Subscribe(pb.SubscribeRequest(node="plain"))
    first = await next_frame(received)
    assert first.manifest == manifest
    data = b""
    while len(data) < manifest.size_bytes:
        data += (await next_frame(received)).chunk.data
    assert data == content(1)
    confirmation = pb.ConfirmRequest(node="plain", version=1, digest=manifest.digest, state=pb.CONFIRM_STATE_STAGED)
    await stack.plain.Confirm(confirmation)
    assert (await next_frame(received)).switch == pb.WeightSwitch(version=1, digest=manifest.digest)
    listed = await stack.plain.List(pb.ListRequest())
    assert [version.version for version in listed.versions] == [1]
    received.cancel()


async def test_reflection_lists_the_service(stack: Stack) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(grpc.Channel, stack.channel))
    request = cast(Any, reflection_pb2).ServerReflectionRequest(list_services="")
    call = stub.ServerReflectionInfo(iter([request]))
    names = [service.name async for answer in call for service in answer.list_services_response.service]
    assert "rein.v1.WeightService" in names


async def test_the_same_version_again_is_fine_and_other_bytes_are_refused(stack: Stack) -> None:
    await stack.publish(1)
    await stack.publish(1)
    async with WeightPublisher(stack.address) as publisher:
        with pytest.raises(VersionTaken, match="another version"):
            await publisher.publish(fields(1), weights=content(7))
    assert [version.version for version in stack.server.list("run").versions] == [1]


async def test_bytes_that_are_not_the_manifests_are_refused_and_leave_nothing(stack: Stack) -> None:
    manifest = completed(fields(1), weights=content(1), chunk_bytes=CHUNK_BYTES)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stack.plain.Publish(parsed(frames_of(manifest, weights=content(2))))
    assert refused.value.code() is grpc.StatusCode.DATA_LOSS
    assert leftovers(stack.folder) == []


@pytest.mark.parametrize(("version", "run"), [(0, "run"), (1, ""), (1, "../x")])
async def test_an_unfit_manifest_is_named(stack: Stack, version: int, run: str) -> None:
    async with WeightPublisher(stack.address) as publisher:
        with pytest.raises(TransferRejected, match="refused"):
            await publisher.publish(fields(version, run=run), weights=content(1))


async def test_a_publish_cut_off_between_chunks_leaves_nothing_and_can_be_repeated(stack: Stack) -> None:
    manifest = completed(fields(1), weights=content(1), chunk_bytes=CHUNK_BYTES)
    frames = list(parsed(frames_of(manifest, weights=content(1))))
    call = stack.plain.Publish()
    for frame in frames[:3]:
        await call.write(frame)
    await eventually(lambda: leftovers(stack.folder) != [])
    call.cancel()
    await eventually(lambda: leftovers(stack.folder) == [])
    await stack.publish(1)
    assert stack.server.list("run").current == 1


async def test_a_late_joiner_is_seeded_with_the_current_version(stack: Stack) -> None:
    await stack.publish(1)
    await stack.publish(2)
    async with FakeNode(stack, "late").up() as late:
        await eventually(lambda: late.switched == [2])
        assert late.landed == {2: content(2)}


async def test_a_node_that_has_the_version_gets_no_bytes_of_it(stack: Stack) -> None:
    manifest = await stack.publish(1)
    async with FakeNode(stack, "a").up(have=manifest) as node:
        await eventually(lambda: node.switched == [1])
        assert node.landed == {1: b""}


async def test_a_slow_node_is_cut_off_and_the_others_switch(stack: Stack) -> None:
    async with FakeNode(stack, "fast").up() as fast, FakeNode(stack, "slow", stages=False).up() as slow:
        await stack.publish(1)
        await eventually(lambda: slow.landed == {1: content(1)})
        await eventually(lambda: stack.states()["fast"][1] == "CONFIRM_STATE_STAGED")
        assert fast.switched == []
        await stack.clock.advance(STAGE_S)
        await eventually(lambda: fast.switched == [1])
        await eventually(lambda: isinstance(slow.error, LeftOut))
        slow.stages = True
        async with slow.up():
            await eventually(lambda: slow.switched == [1])


async def test_a_node_that_hangs_up_between_chunks_is_gone(stack: Stack) -> None:
    await stack.publish(1)
    received = stack.plain.Subscribe(pb.SubscribeRequest(node="plain"))
    await next_frame(received)
    assert "plain" in stack.states()
    received.cancel()
    await eventually(lambda: stack.states() == {})


async def test_a_rollback_lasts_until_a_newer_version(stack: Stack) -> None:
    async with FakeNode(stack, "a").up() as node:
        for version in (1, 2):
            await stack.publish(version)
            await eventually(partial(lambda wanted: node.switched[-1:] == [wanted], version))
        assert (await stack.plain.Rollback(pb.RollbackRequest(run="run", version=1))).version == 1
        await eventually(lambda: node.switched == [1, 2, 1])
        assert stack.server.list("run").current == 1
        for version in (3, 4):
            await stack.publish(version)
            await eventually(partial(lambda wanted: node.switched[-1:] == [wanted], version))
        with pytest.raises(grpc.aio.AioRpcError, match="not kept"):
            await stack.plain.Rollback(pb.RollbackRequest(run="run", version=1))


async def test_nodes_follow_the_run_that_published_last(stack: Stack) -> None:
    async with FakeNode(stack, "a").up() as node:
        await stack.publish(1)
        await eventually(lambda: node.switched == [1])
        await stack.publish(1, run="other")
        await eventually(lambda: node.switched == [1, 1])


async def next_frame(call: "grpc.aio.UnaryStreamCall[pb.SubscribeRequest, pb.WeightFrame]") -> pb.WeightFrame:
    frame = await call.read()
    assert isinstance(frame, pb.WeightFrame)
    return frame


def parsed(frames: Iterator[bytes]) -> Iterator[pb.WeightFrame]:
    return (pb.WeightFrame.FromString(frame) for frame in frames)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
