"""A whole node with a fake engine: fenced, ready, killed, restarted, stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import weights_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_inference.adapters.memory import SharedMemory
from rein_inference.config import EngineSettings, InferenceConfig
from rein_inference.errors import EngineHopeless
from rein_inference.fake_engine import FakeEngine, logprobs_under
from rein_inference.ports import Load
from rein_inference.service import InferenceNode
from rein_service.clock import SystemClock
from rein_service.testing import eventually
from rein_transfer.manifest import completed
from rein_transfer.memory import MemoryFeed

PROBE = [1, 2, 3]
CONTENT = b"weights" * 100


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = MemoryBroker()
        self.feed = MemoryFeed()
        self.engine = FakeEngine()
        self.draining = asyncio.Event()
        config = InferenceConfig(
            model=folder,
            node="n",
            memory=folder,
            reconnect_s=0.01,
            report_s=0.05,
            finish_s=5.0,
            engine=EngineSettings(backoff_s=0.01, max_backoff_s=0.02, max_starts=3),
        )
        self.node = InferenceNode(
            bus=MemoryBus(self.broker),
            engine=self.engine,
            feed=self.feed,
            memory=SharedMemory(folder, node="n"),
            clock=SystemClock(),
            config=config,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Future[None]"]:
        living = asyncio.ensure_future(self.node.run(self.draining))
        try:
            yield living
        finally:
            self.draining.set()
            await asyncio.gather(living, return_exceptions=True)

    def offer(self, version: int) -> None:
        probe = pb.Probe(token_ids=PROBE, logprobs=logprobs_under(CONTENT, PROBE), tolerance=1e-3)
        manifest = completed(
            pb.WeightManifest(run="run", version=version, probe=probe), weights=CONTENT, chunk_bytes=100
        )
        self.feed.offer(manifest, weights=CONTENT)

    def reports(self) -> list[ev.NodeReported]:
        return [ev.NodeReported.FromString(stored.value) for stored in self.broker.read((ev.NodeReported, 0))]

    async def until_reported(self, state: "ev.NodeState.ValueType", *, version: int) -> ev.NodeReported:
        await eventually(self.reports)
        await eventually(lambda: (self.reports()[-1].state, self.reports()[-1].version) == (state, version))
        return self.reports()[-1]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_a_node_reports_fenced_then_ready_and_goes(rig: Rig) -> None:
    (rig.folder / "rein-n-3.safetensors").write_bytes(b"left behind")
    (rig.folder / "rein-other-3.safetensors").write_bytes(b"another node's")
    async with rig.running():
        await eventually(rig.reports)
        assert rig.reports()[0].state == ev.NODE_STATE_FENCED
        rig.offer(1)
        report = await rig.until_reported(ev.NODE_STATE_READY, version=1)
        assert (report.node, report.run, report.engine_url) == ("n", "run", "http://127.0.0.1:9710")
        assert not report.HasField("failure")
        assert [path.name for path in rig.folder.iterdir()] == ["rein-other-3.safetensors"]
        rig.engine.busy = Load(num_running=2, num_waiting=1)
        await eventually(lambda: (rig.reports()[-1].num_running, rig.reports()[-1].num_waiting) == (2, 1))
        rig.engine.busy = Load()
    assert rig.reports()[-1].state == ev.NODE_STATE_GONE


async def test_a_killed_engine_fences_the_node_at_once_and_a_whole_version_makes_it_ready_again(rig: Rig) -> None:
    async with rig.running():
        rig.offer(1)
        await rig.until_reported(ev.NODE_STATE_READY, version=1)
        rig.engine.die()
        await eventually(lambda: rig.engine.num_starts == 2)
        codes = [(report.failure.code, report.version) for report in rig.reports()]
        assert ("engine.lost", 0) in codes
        await rig.until_reported(ev.NODE_STATE_READY, version=1)
        assert rig.engine.weights == CONTENT
        assert rig.feed.subscriptions[-1].have_version == 0


async def test_an_engine_that_never_starts_ends_the_process(rig: Rig) -> None:
    rig.engine.fail_starts = 99
    async with rig.running() as living:
        with pytest.raises(ExceptionGroup) as failed:
            await asyncio.wait_for(living, 5)
        assert failed.group_contains(EngineHopeless, match="3 times in a row")
        assert rig.engine.num_starts == 3


async def test_starts_that_fail_now_and_then_are_survived(rig: Rig) -> None:
    rig.engine.fail_starts = 2
    async with rig.running():
        rig.offer(1)
        await rig.until_reported(ev.NODE_STATE_READY, version=1)


async def test_a_wrong_probe_is_reported_and_the_engine_started_over(rig: Rig) -> None:
    async with rig.running():
        rig.engine.ignore_update = True
        rig.offer(1)
        await eventually(lambda: any(each.failure.code == "weights.probe_disagrees" for each in rig.reports()))
        rig.engine.ignore_update = False
        await rig.until_reported(ev.NODE_STATE_READY, version=1)


async def test_requests_in_hand_may_finish_before_the_engine_is_stopped(rig: Rig) -> None:
    async with rig.running() as living:
        rig.offer(1)
        await rig.until_reported(ev.NODE_STATE_READY, version=1)
        rig.engine.busy = Load(num_running=1)
        rig.draining.set()
        await eventually(lambda: rig.reports()[-1].state == ev.NODE_STATE_GONE)
        assert not living.done()
        rig.engine.busy = Load()
        await asyncio.wait_for(living, 5)


async def test_a_broker_that_is_away_stops_nothing(rig: Rig) -> None:
    rig.broker.faults.refuse_publish = True
    async with rig.running():
        rig.offer(1)
        await eventually(lambda: rig.node.standing.is_ready)
        rig.broker.faults.refuse_publish = False
        await eventually(rig.reports)
        await rig.until_reported(ev.NODE_STATE_READY, version=1)
