"""From frames to confirmed weights, with a fake engine and a weight server in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from rein.v1 import weights_pb2 as pb
from rein_inference.adapters.memory import SharedMemory
from rein_inference.domain.backoff import Backoff
from rein_inference.domain.standing import Standing
from rein_inference.errors import EngineRefused, ProbeDisagrees
from rein_inference.fake_engine import FakeEngine, logprobs_under
from rein_inference.follower import WeightFollower
from rein_service.clock import SystemClock
from rein_service.testing import eventually
from rein_transfer.manifest import completed
from rein_transfer.memory import MemoryFeed

PROBE = [1, 2, 3, 4]


def content(version: int) -> bytes:
    return f"weights {version} ".encode() * 300


def manifest_of(version: int, *, run: str = "run") -> pb.WeightManifest:
    probe = pb.Probe(token_ids=PROBE, logprobs=logprobs_under(content(version), PROBE), tolerance=1e-3)
    return completed(
        pb.WeightManifest(run=run, version=version, probe=probe), weights=content(version), chunk_bytes=500
    )


class Around:
    """A follower and what is around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.feed = MemoryFeed()
        self.engine = FakeEngine()
        self.standing = Standing()

    @asynccontextmanager
    async def following(self) -> AsyncIterator["asyncio.Future[NoReturn]"]:
        await self.engine.start()
        follower = WeightFollower(
            feed=self.feed,
            engine=self.engine,
            memory=SharedMemory(self.folder, node="n"),
            standing=self.standing,
            subscription=pb.SubscribeRequest(node="n"),
        )
        reconnect = Backoff(0.001, 0.002, max_failures=0)
        running = asyncio.ensure_future(follower.run(clock=SystemClock(), reconnect=reconnect))
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert list(self.folder.iterdir()) == []

    def offer(self, version: int, *, run: str = "run") -> None:
        self.feed.offer(manifest_of(version, run=run), weights=content(version))

    async def until_ready(self, version: int) -> None:
        await eventually(lambda: self.standing.is_ready and self.standing.weights.version == version)


@pytest.fixture
def around(tmp_path: Path) -> Around:
    return Around(tmp_path)


async def test_a_version_is_staged_applied_probed_and_confirmed(around: Around) -> None:
    async with around.following():
        around.offer(1)
        await around.until_ready(1)
        await eventually(lambda: around.feed.states(1) == ["staged", "live"])
        assert around.engine.weights == content(1)
        assert around.feed.confirmed[-1].probe_gap < 1e-5
        assert list(around.folder.iterdir()) == []


async def test_a_version_that_is_served_is_not_applied_again(around: Around) -> None:
    async with around.following():
        around.offer(1)
        await around.until_ready(1)
        around.offer(1)
        await eventually(lambda: around.feed.states(1) == ["staged", "live"] * 2)
        assert around.engine.updates == [1]


async def test_the_same_bytes_in_another_run_are_taken_over(around: Around) -> None:
    async with around.following():
        around.offer(1)
        await around.until_ready(1)
        around.offer(1, run="other")
        await eventually(lambda: around.standing.weights.run == "other")
        assert around.engine.updates == [1]


async def test_a_stream_broken_between_chunks_applies_nothing_and_the_old_version_serves_on(around: Around) -> None:
    async with around.following():
        around.offer(1)
        await around.until_ready(1)
        around.feed.faults.break_after_chunks = 3
        around.offer(2)
        await eventually(lambda: len(around.feed.subscriptions) > 3)
        assert around.standing.is_ready
        assert around.engine.updates == [1]
        around.feed.faults.break_after_chunks = None
        await around.until_ready(2)
        assert around.feed.subscriptions[-1].have_version == 1


async def test_bytes_with_another_digest_are_refused_and_the_node_is_fenced(around: Around) -> None:
    async with around.following():
        around.offer(1)
        await around.until_ready(1)
        around.feed.faults.flip_byte = 700
        around.offer(2)
        await eventually(lambda: "failed" in around.feed.states(2))
        fence = around.standing.fence
        assert fence
        assert fence.code == "transfer.digest_differs"
        assert around.engine.updates == [1]
        around.feed.faults.flip_byte = None
        await around.until_ready(2)


async def test_a_probe_that_disagrees_fences_the_node_and_gives_the_engine_up(around: Around) -> None:
    async with around.following() as running:
        around.engine.ignore_update = True
        around.offer(1)
        with pytest.raises(ProbeDisagrees, match="nats"):
            await asyncio.wait_for(running, 5)
        assert not around.standing.is_ready
        assert around.standing.weights.version == 0
        assert around.feed.states(1) == ["staged", "failed"]
        assert around.feed.confirmed[-1].probe_gap > 1e-3


async def test_a_refused_update_gives_the_engine_up(around: Around) -> None:
    async with around.following() as running:
        around.offer(1)
        await around.until_ready(1)
        around.engine.fail_update = True
        around.offer(2)
        with pytest.raises(EngineRefused):
            await asyncio.wait_for(running, 5)
        assert around.standing.weights.version == 0
        assert around.feed.states(2) == ["staged", "failed"]


async def test_a_node_left_out_is_fenced_and_starts_over_from_nothing(around: Around) -> None:
    async with around.following():
        around.offer(1)
        await around.until_ready(1)
        around.feed.leave_out()
        await eventually(lambda: len(around.feed.subscriptions) == 2)
        assert around.feed.subscriptions[-1].have_version == 0
        await around.until_ready(1)
        assert around.engine.updates == [1, 1]


async def test_a_version_without_a_probe_is_never_served(around: Around) -> None:
    async with around.following():
        manifest = manifest_of(1)
        manifest.ClearField("probe")
        around.feed.offer(manifest, weights=content(1))
        await eventually(lambda: "failed" in around.feed.states(1))
        assert around.standing.fence
        assert around.engine.updates == []


async def test_a_newer_version_replaces_one_that_is_only_staged(around: Around) -> None:
    around.feed.faults.refuse_confirms = True
    async with around.following():
        around.offer(1)
        await eventually(lambda: len(around.feed.subscriptions) > 2)
        assert around.engine.updates == []
        around.offer(2)
        around.feed.faults.refuse_confirms = False
        await around.until_ready(2)
        assert around.engine.updates == [2]
