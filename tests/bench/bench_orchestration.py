"""What a rollout costs Rein itself: bus, lease, gateway, grade and join; harness, model and tests do nothing.

Dispatcher, runner, gateway, grader and assembler are the real ones, in one process on a real broker; the sandbox makes
one model call over real HTTP and the engine answers at once. The engine holds its answers until all rollouts are in
flight, so the bench shows that many at once. CPU is this process's own, all threads; the broker's is printed beside it.
One JSON line per figure.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import SecretStr

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_assembler.adapters.arrays import BlobArrays
from rein_assembler.service import Assembler
from rein_blobs import BlobStore
from rein_bus.kafka import KafkaBus
from rein_bus.localbroker import LocalBroker, free_ports
from rein_bus.ports import Start
from rein_bus.preflight import preflight
from rein_bus.settings import KafkaSettings
from rein_dispatcher.domain.schedule import Tasks
from rein_dispatcher.service import Dispatcher
from rein_gateway.adapters.http import Desk, open_listener
from rein_gateway.config import GatewayConfig, HttpSettings
from rein_gateway.domain.generation import Generation
from rein_gateway.domain.session import Ids
from rein_gateway.service import Gateway
from rein_gateway.wiring import Outside, core_of
from rein_grader.domain.grade import Grade
from rein_grader.service import Grader, GraderSettings
from rein_harnesses import Command
from rein_runner.adapters.gateway import open_gateway
from rein_runner.attempt import AttemptSettings, Means
from rein_runner.ports import Bench
from rein_runner.service import Runner
from rein_sandboxes.ports import SandboxResult, SandboxSpec
from rein_sandboxes.scripted import ScriptedSandboxes, exited, one_model_call
from rein_service.clock import SystemClock

ROOT = Path(__file__).resolve().parents[2]
SECRET = "bench"
GROUP_SIZE = 8
CPU_LIMIT_MS = 40.0


@dataclass
class NullEngine:
    """Says one token; holds every answer until `wanted` calls are waiting."""

    wanted: int
    stop_id: int = 0
    num_waiting: int = 0
    max_waiting: int = 0
    full: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(
        self, url: str, *, token_ids: Ids, sampling: pb.Sampling, stop_id: int, cache_salt: str
    ) -> Generation:
        self.num_waiting += 1
        self.max_waiting = max(self.max_waiting, self.num_waiting)
        if self.num_waiting >= self.wanted:
            self.full.set()
        await self.full.wait()
        self.num_waiting -= 1
        return Generation((stop_id,), (-0.1,), (stop_id,), ((1, 0, 1),), "stop", len(token_ids), 1)


class NullCatalog:
    def tasks(self, task_set: str) -> Tasks:
        return Tasks(train=["null"], heldout=[], digests={"null": "0"})

    def harnesses(self) -> Collection[str]:
        return ["null"]


class NullWorkshop:
    async def set_up(self, request: ev.RolloutRequested, *, tree: Path) -> Bench:
        tree.mkdir(exist_ok=True)
        return Bench(
            kept=tree, command=Command(argv=("/bin/true",), env={}, files={}), harness_version="1", runtime=None
        )


class NullExaminer:
    async def examine(self, finished: ev.RolloutFinished, *, patch: bytes) -> Grade:
        return Grade(is_passed=True, tests=(), failure=None, output=b"", wall_s=0.0, cpu_s=0.0)


async def sandbox(spec: SandboxSpec) -> SandboxResult:
    """The harness asks once; taking the patch finds none."""
    return exited() if spec.pipe is None else await one_model_call(spec)


def spec_of(num_rollouts: int) -> ev.RunSpec:
    return ev.RunSpec(
        name="bench",
        task_set="null",
        model="null",
        harnesses=[ev.HarnessShare(harness="null", weight=1)],
        group_size=GROUP_SIZE,
        min_group_size=1,
        groups_per_step=num_rollouts // GROUP_SIZE,
        steps=1,
        max_attempts=1,
        group_deadline_s=600,
        sampling=pb.Sampling(temperature=1, max_tokens=8),
        limits=pb.Limits(wall_s=300, memory_bytes=1, grading_s=10),
        objective=ev.Objective(learning_rate=1e-4, max_row_tokens=100),
    )


@contextlib.asynccontextmanager
async def services(
    kafka: KafkaSettings, *, engine: NullEngine, folder: Path
) -> AsyncIterator[tuple[KafkaBus, Dispatcher]]:
    """The five services at work in this loop."""
    clock, draining = SystemClock(), asyncio.Event()
    (port,) = free_ports(1)
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(KafkaBus(kafka))
        blobs = BlobStore(str(folder / "blobs"))
        config = GatewayConfig(
            model=ROOT / "deploy" / "demo" / "policy", grant_secret=SecretStr(SECRET), http=HttpSettings(port=port)
        )
        core = core_of(config, Outside(bus, blobs, engine, clock))
        listener = await stack.enter_async_context(
            open_listener(Desk.of(core, config, clock=clock), settings=config.http)
        )
        urls = (f"http://127.0.0.1:{port}",)
        means = Means(
            sandboxes=ScriptedSandboxes(sandbox),
            workshop=NullWorkshop(),
            gateway=await stack.enter_async_context(open_gateway(urls, clock=clock, patience_s=20)),
            blobs=blobs,
            clock=clock,
            settings=AttemptSettings(folder / "runner", "bench", SECRET.encode(), 1000, 20.0),
        )
        grading = GraderSettings(instance="bench", capacity=16, attempts=1, reuse_grades=False, drain_s=1)
        dispatcher = Dispatcher(bus=bus, catalog=NullCatalog(), clock=clock, lease_s=120, tick_s=1)
        loops = [
            Gateway(bus=bus, core=core, listener=listener, clock=clock).run,
            Runner(bus=bus, means=means, capacity=engine.wanted, drain_s=1).run,
            Grader(bus=bus, blobs=blobs, examiner=NullExaminer(), clock=clock, settings=grading).run,
            Assembler(
                bus=bus,
                arrays=BlobArrays(blobs, clock=clock),
                clock=clock,
                unopened_limit_s=900,
                checkpoint_records=1000,
            ).run,
            dispatcher.run,
        ]
        tasks = [asyncio.ensure_future(loop(draining)) for loop in loops]
        try:
            yield bus, dispatcher
        finally:
            draining.set()
            await asyncio.wait(tasks, timeout=30)


async def measure(kafka: KafkaSettings, *, num_rollouts: int, folder: Path) -> tuple[float, float, int]:
    """CPU ms per rollout, seconds from request to the last join, most rollouts in flight."""
    await preflight(kafka)
    engine = NullEngine(wanted=num_rollouts)
    ready = [
        ev.PolicyPublished(run="bench", version=1),
        ev.NodeReported(
            node="null", run="bench", state=ev.NODE_STATE_READY, version=1, engine_url="http://null", interval_s=600
        ),
    ]
    async with services(kafka, engine=engine, folder=folder) as (bus, dispatcher):
        await dispatcher.start_run(spec_of(num_rollouts))
        async with bus.follow(ev.GroupAssembled, start=Start.LATEST) as ended:
            await ended.caught_up()
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            await bus.publish(*ready)
            num_rewarded = 0
            async for record in ended:
                assert isinstance(record.message, ev.GroupAssembled)
                num_rewarded += sum(member.HasField("reward") for member in record.message.members)
                if num_rewarded == num_rollouts:
                    break
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return 1000 * cpu_s / num_rollouts, wall_s, engine.max_waiting


def line(metric: str, value: float, unit: str, *, limit: float, holds: bool) -> None:
    row = {"bench": "orchestration", "metric": metric, "value": round(value, 2), "unit": unit}
    print(
        json.dumps({**row, "baseline": limit, "ratio": round(value / limit, 3), "limit": limit, "holds": holds}),
        flush=True,
    )


def main() -> int:
    num_rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    broker_port, controller_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="rein-bench-") as folder:
        jars = ROOT / "var" / "kafka" / "libs"
        broker = LocalBroker(Path(folder) / "kafka", port=broker_port, controller_port=controller_port, jars=jars)
        broker.start()
        try:
            kafka = KafkaSettings(servers=f"127.0.0.1:{broker_port}")
            cost_ms, wall_s, in_flight = asyncio.run(measure(kafka, num_rollouts=num_rollouts, folder=Path(folder)))
            java = next(p for p in psutil.process_iter() if p.pid == broker.pid())
            broker_s = sum(java.cpu_times()[:2])
        finally:
            broker.stop()
    line("cpu_per_rollout", cost_ms, "ms", limit=CPU_LIMIT_MS, holds=cost_ms <= CPU_LIMIT_MS)
    line("rollouts_in_flight", in_flight, "rollouts", limit=1000, holds=in_flight >= min(1000, num_rollouts))
    print(
        json.dumps({"bench": "orchestration", "metric": "broker_cpu_total", "value": round(broker_s, 1), "unit": "s"})
    )
    print(json.dumps({"bench": "orchestration", "metric": "wall", "value": round(wall_s, 1), "unit": "s"}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
