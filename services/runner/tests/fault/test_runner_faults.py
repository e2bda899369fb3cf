"""The runner on the memory bus, with scripted sandboxes: leases, fences, duplicates, drains, troubles typed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobStore
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_bus.ports import Start
from rein_contracts import grants
from rein_harnesses import Command
from rein_runner.attempt import AttemptSettings, Means
from rein_runner.domain.session import SessionEnd
from rein_runner.errors import GatewayAway, HarnessRefused, TaskRefused
from rein_runner.ports import Bench
from rein_runner.service import Runner
from rein_sandboxes.errors import SandboxFailed
from rein_sandboxes.ports import Ending, PipeUse, SandboxResult, SandboxSpec
from rein_sandboxes.scripted import ScriptedSandboxes, exited
from rein_service.clock import FakeClock
from rein_service.testing import eventually

SECRET = b"a deployment's secret"
PATCH = b"diff --git a/x b/x\n"


@dataclass
class FakeGateway:
    """Counts the sessions it ended."""

    end_of: Callable[[], SessionEnd | None] = lambda: SessionEnd(num_turns=2, limit=None)
    grants: list[str] = field(default_factory=list)

    def url_of(self, attempt: str) -> str:
        return "http://gateway"

    async def end(self, attempt: str, *, grant: str) -> SessionEnd | None:
        self.grants.append(grant)
        return self.end_of()


@dataclass
class FakeWorkshop:
    """An empty tree; or an error."""

    error: Exception | None = None

    async def set_up(self, request: ev.RolloutRequested, *, tree: Path) -> Bench:
        if self.error is not None:
            raise self.error
        tree.mkdir()
        (tree / "index").touch()
        return Bench(
            kept=tree, command=Command(argv=("/bin/true",), env={}, files={}), harness_version="1", runtime=None
        )


class Stage:
    """A runner's surroundings. The sandbox does what `harness` says; taking the patch always gives PATCH."""

    def __init__(self, tmp_path: Path) -> None:
        self.broker = MemoryBroker()
        self.clock = FakeClock()
        self.gateway = FakeGateway()
        self.workshop = FakeWorkshop()
        self.harness: Callable[[SandboxSpec], Awaitable[SandboxResult]] = self.well
        self.sandboxes = ScriptedSandboxes(self._run)
        self.tmp_path = tmp_path
        self.buses: list[MemoryBus] = []

    async def well(self, spec: SandboxSpec) -> SandboxResult:
        return replace(exited(output=b"done"), pipe=PipeUse(num_requests=2))

    async def forever(self, spec: SandboxSpec) -> SandboxResult:
        await asyncio.Event().wait()
        raise AssertionError

    async def _run(self, spec: SandboxSpec) -> SandboxResult:
        return exited(output=PATCH) if spec.name.endswith(".diff") else await self.harness(spec)

    def means(self, name: str) -> Means:
        settings = AttemptSettings(
            state=self.tmp_path / name,
            instance=name,
            grant_secret=SECRET,
            max_patch_bytes=1000,
            gateway_patience_s=1.0,
        )
        blobs = BlobStore(str(self.tmp_path / "blobs"))
        return Means(
            sandboxes=self.sandboxes,
            workshop=self.workshop,
            gateway=self.gateway,
            blobs=blobs,
            clock=self.clock,
            settings=settings,
        )

    @asynccontextmanager
    async def runner(
        self, name: str = "one", *, capacity: int = 4, drain_s: float = 0.1
    ) -> AsyncIterator[asyncio.Event]:
        """A runner at work; yields its drain signal. Leaving drains it."""
        bus = MemoryBus(self.broker)
        self.buses.append(bus)
        runner = Runner(bus=bus, means=self.means(name), capacity=capacity, drain_s=drain_s)
        draining = asyncio.Event()
        working = asyncio.create_task(runner.run(draining))
        try:
            yield draining
        finally:
            draining.set()
            await asyncio.wait_for(working, 5)

    async def publish(self, *messages: Message) -> None:
        await MemoryBus(self.broker).publish(*messages)

    async def log(self, kind: type[Message]) -> list[Message]:
        found: list[Message] = []
        async with MemoryBus(self.broker).follow(kind, start=Start.EARLIEST) as follower:
            while not follower.has_caught_up():
                found.append((await anext(aiter(follower))).message)
        return found


def request(*, attempt: int = 1, member: int = 0, lease_s: float = 30.0) -> ev.RolloutRequested:
    return ev.RolloutRequested(
        identity=pb.Identity(run="r", task="t", group="r.g0", member=member, attempt=attempt),
        purpose=pb.PURPOSE_TRAIN,
        harness="null",
        task_set="set",
        task_digest="d",
        limits=pb.Limits(wall_s=60, memory_bytes=1 << 28, processes=10),
        policy_version=7,
        lease_s=lease_s,
    )


def fence(*, attempt: int = 1, is_final: bool = False) -> ev.RolloutFenced:
    return ev.RolloutFenced(identity=request(attempt=attempt).identity, is_final=is_final)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def finished(stage: Stage, *, number: int = 1) -> ev.RolloutFinished:
    """The `number`-th finished attempt."""
    async with MemoryBus(stage.broker).follow(ev.RolloutFinished, start=Start.EARLIEST) as follower:
        async with asyncio.timeout(5):
            async for record in follower:
                number -= 1
                if number == 0:
                    assert isinstance(record.message, ev.RolloutFinished)
                    return record.message
    raise AssertionError


async def leases(stage: Stage) -> list[tuple[str, int]]:
    return [
        (each.runner, each.state) for each in await stage.log(ev.RolloutLeased) if isinstance(each, ev.RolloutLeased)
    ]


async def test_a_request_becomes_a_patch_under_a_lease(stage: Stage) -> None:
    async with stage.runner():
        await stage.publish(request())
        event = await finished(stage)
    assert not event.HasField("failure")
    assert (event.num_turns, event.harness_version, event.runner) == (2, "1", "one")
    assert await BlobStore(str(stage.tmp_path / "blobs")).get(event.patch) == PATCH
    assert await BlobStore(str(stage.tmp_path / "blobs")).get(event.output) == b"done"
    assert await leases(stage) == [("one", ev.LEASE_STATE_TAKEN), ("one", ev.LEASE_STATE_RELEASED)]
    assert list((stage.tmp_path / "one/live").iterdir()) == []


async def test_the_grant_names_the_attempt_and_never_enters_the_sandbox(stage: Stage) -> None:
    async with stage.runner():
        await stage.publish(request())
        await finished(stage)
    spec = stage.sandboxes.specs[0]
    assert spec.pipe is not None
    grant = grants.verify(spec.pipe.grant, secret=SECRET, now_s=stage.clock.now().timestamp())
    assert grant.identity == request().identity
    assert (grant.policy_version, grant.harness) == (7, "null")
    assert grant.issued_at_s == stage.clock.now().timestamp()
    assert stage.gateway.grants == [spec.pipe.grant]
    assert spec.pipe.grant not in repr(spec)
    assert spec.pipe.grant not in str([spec.argv, spec.env, spec.files])


@pytest.mark.parametrize(
    ("error", "owner", "code"),
    [
        (TaskRefused("task.broken", "x"), pb.OWNER_TASK, "task.broken"),
        (HarnessRefused("operator.harness_unknown", "x"), pb.OWNER_OPERATOR, "operator.harness_unknown"),
        (SandboxFailed("sandbox.disk_full", "x"), pb.OWNER_SANDBOX, "sandbox.disk_full"),
    ],
)
async def test_what_cannot_be_set_up_is_a_typed_failure(stage: Stage, error: Exception, owner: int, code: str) -> None:
    stage.workshop.error = error
    async with stage.runner():
        await stage.publish(request())
        event = await finished(stage)
    assert (event.failure.owner, event.failure.code) == (owner, code)


async def test_a_sandbox_that_does_not_start_is_the_sandboxs(stage: Stage) -> None:
    async def broken(spec: SandboxSpec) -> SandboxResult:
        raise SandboxFailed("sandbox.start_failed", "no user namespaces")

    stage.harness = broken
    async with stage.runner():
        await stage.publish(request())
        event = await finished(stage)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_SANDBOX, "sandbox.start_failed")


async def test_a_gateway_that_is_away_is_inferences(stage: Stage) -> None:
    def away() -> SessionEnd:
        raise GatewayAway("inference.gateway_unreachable", "connection refused")

    stage.gateway.end_of = away
    async with stage.runner():
        await stage.publish(request())
        event = await finished(stage)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_INFERENCE, "inference.gateway_unreachable")


async def test_time_that_ran_out_is_the_policys_and_the_patch_is_still_taken(stage: Stage) -> None:
    async def slow(spec: SandboxSpec) -> SandboxResult:
        return replace(await stage.well(spec), ending=Ending.OUT_OF_TIME, exit_status=-9)

    stage.harness = slow
    async with stage.runner():
        await stage.publish(request())
        event = await finished(stage)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_POLICY, "policy.out_of_time")
    assert event.patch.size_bytes == len(PATCH)


async def test_a_request_delivered_twice_runs_once(stage: Stage) -> None:
    async with stage.runner():
        await stage.publish(request(), request())
        await finished(stage)
        await stage.publish(request(), request(member=1))
        await finished(stage, number=2)
    assert len(await stage.log(ev.RolloutFinished)) == 2
    assert len([spec for spec in stage.sandboxes.specs if not spec.name.endswith(".diff")]) == 2


async def test_an_attempt_another_runner_took_first_is_left_alone(stage: Stage) -> None:
    taken = ev.RolloutLeased(identity=request().identity, state=ev.LEASE_STATE_TAKEN, runner="other", lease_s=30)
    await stage.publish(taken)
    async with stage.runner():
        await stage.publish(request(), request(member=1))
        event = await finished(stage)
    assert event.identity.member == 1
    assert len(await stage.log(ev.RolloutFinished)) == 1


async def test_a_killed_runners_attempt_is_not_run_again_under_the_same_number(stage: Stage) -> None:
    stage.harness = stage.forever
    bus = MemoryBus(stage.broker)
    runner = Runner(bus=bus, means=stage.means("one"), capacity=4, drain_s=1)
    working = asyncio.create_task(runner.run(asyncio.Event()))
    await stage.publish(request())
    await eventually(lambda: stage.sandboxes.num_running == 1)
    working.cancel()
    await asyncio.wait([working])
    assert stage.sandboxes.num_running == 0
    stage.harness = stage.well
    async with stage.runner("two"):
        await stage.publish(request(), request(attempt=2))
        event = await finished(stage)
    assert event.identity.attempt == 2
    assert len(await stage.log(ev.RolloutFinished)) == 1


async def test_a_fence_kills_the_attempt_and_says_so(stage: Stage) -> None:
    stage.harness = stage.forever
    async with stage.runner():
        await stage.publish(request(), request(member=1))
        await eventually(lambda: stage.sandboxes.num_running == 2)
        await stage.publish(fence())
        event = await finished(stage)
        assert stage.sandboxes.num_running == 1
    assert (event.identity.member, event.failure.code) == (0, "operator.fenced")


async def test_a_fenced_request_in_the_queue_is_never_started(stage: Stage) -> None:
    await stage.publish(fence(attempt=2, is_final=True), request(attempt=1), request(attempt=3), request(member=1))
    async with stage.runner():
        event = await finished(stage)
    assert event.identity.member == 1
    assert len(await stage.log(ev.RolloutLeased)) == 2


async def test_a_lease_is_renewed_while_the_harness_works(stage: Stage) -> None:
    stage.harness = stage.forever
    async with stage.runner():
        await stage.publish(request(lease_s=30))
        await eventually(lambda: stage.sandboxes.num_running == 1)
        await eventually(lambda: stage.clock.num_sleepers == 1)
        await stage.clock.advance(100)
        states = [state for _, state in await leases(stage)]
    assert states == [ev.LEASE_STATE_TAKEN, *[ev.LEASE_STATE_RENEWED] * 10]


async def test_a_lease_that_cannot_be_renewed_ends_the_attempt(stage: Stage) -> None:
    stage.harness = stage.forever
    async with stage.runner():
        await stage.publish(request(lease_s=30))
        await eventually(lambda: stage.sandboxes.num_running == 1)
        await eventually(lambda: stage.clock.num_sleepers == 1)
        stage.buses[0].lose_connection()
        await stage.clock.advance(35)
        await eventually(lambda: stage.sandboxes.num_running == 0)
        stage.buses[0].restore_connection()
        await stage.clock.advance(5)
        event = await finished(stage)
    assert event.failure.code == "operator.lease_lost"


async def test_no_more_than_its_capacity_is_taken(stage: Stage) -> None:
    stage.harness = stage.forever
    async with stage.runner(capacity=2):
        await stage.publish(*(request(member=member) for member in range(5)))
        await eventually(lambda: stage.sandboxes.num_running == 2)
        assert len(await leases(stage)) == 2
        async with stage.runner("two", capacity=8):
            await eventually(lambda: stage.sandboxes.num_running >= 2)


async def test_a_drain_hands_back_what_does_not_finish(stage: Stage) -> None:
    stage.harness = stage.forever
    async with stage.runner() as draining:
        await stage.publish(request())
        await eventually(lambda: stage.sandboxes.num_running == 1)
        draining.set()
        event = await finished(stage)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_OPERATOR, "operator.drained")
    assert (await leases(stage))[-1] == ("one", ev.LEASE_STATE_RELEASED)


async def test_a_drain_lets_what_is_nearly_done_finish(stage: Stage) -> None:
    go_on = asyncio.Event()

    async def soon(spec: SandboxSpec) -> SandboxResult:
        await go_on.wait()
        return await stage.well(spec)

    stage.harness = soon
    async with stage.runner(drain_s=60) as draining:
        await stage.publish(request())
        await eventually(lambda: stage.sandboxes.num_running == 1)
        draining.set()
        await asyncio.sleep(0)
        go_on.set()
        event = await finished(stage)
    assert not event.HasField("failure")


async def test_an_unforeseen_error_stops_the_service(stage: Stage) -> None:
    async def bug(spec: SandboxSpec) -> SandboxResult:
        raise ZeroDivisionError

    stage.harness = bug
    await stage.publish(request())
    runner = Runner(bus=MemoryBus(stage.broker), means=stage.means("one"), capacity=4, drain_s=1)
    with pytest.raises(ExceptionGroup) as failure:
        await runner.run(asyncio.Event())
    assert failure.group_contains(ZeroDivisionError)
