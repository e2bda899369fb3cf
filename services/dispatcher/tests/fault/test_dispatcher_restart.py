"""The dispatcher on the memory bus: it goes on where a killed one stopped, and asks for nothing twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_bus.ports import Start
from rein_contracts.ids import attempt_id
from rein_dispatcher.domain.schedule import Tasks
from rein_dispatcher.errors import ClusterBusy, RunExists, RunMissing, SpecRejected
from rein_dispatcher.service import Dispatcher
from rein_service.clock import FakeClock
from rein_service.testing import eventually

TASKS = Tasks(train=["a", "b"], heldout=["h"], digests={"a": "da", "b": "db", "h": "dh"})


class Shelf:
    """A catalog in memory."""

    def tasks(self, task_set: str) -> Tasks:
        return TASKS

    def harnesses(self) -> Collection[str]:
        return ["null"]


def make_spec(name: str = "r") -> ev.RunSpec:
    return ev.RunSpec(
        name=name,
        task_set="set",
        model="model",
        harnesses=[ev.HarnessShare(harness="null", weight=1)],
        group_size=2,
        min_group_size=1,
        groups_per_step=1,
        steps=1,
        max_attempts=2,
        group_deadline_s=600,
        sampling=pb.Sampling(temperature=1, max_tokens=10),
        limits=pb.Limits(wall_s=10, memory_bytes=1, grading_s=10),
        objective=ev.Objective(learning_rate=1e-4, max_row_tokens=100),
        eval=ev.EvalSpec(at_steps=[0], samples_per_task=1),
    )


@asynccontextmanager
async def running(broker: MemoryBroker) -> AsyncIterator[Dispatcher]:
    """A dispatcher at work; leaving the block kills it without a drain."""
    bus = MemoryBus(broker)
    dispatcher = Dispatcher(bus=bus, catalog=Shelf(), clock=FakeClock(), lease_s=10, tick_s=0.02)
    task = asyncio.create_task(dispatcher.run(asyncio.Event()))
    try:
        yield dispatcher
    finally:
        task.cancel()
        await asyncio.wait([task])


class Log:
    """Everything on the bus, as a stranger would read it."""

    def __init__(self) -> None:
        self.messages: list[object] = []

    def of(self, kind: type[object]) -> list[object]:
        return [message for message in self.messages if isinstance(message, kind)]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def log(broker: MemoryBroker) -> AsyncIterator[Log]:
    seen = Log()
    kinds = (ev.RunChanged, ev.GroupOpened, ev.RolloutRequested, ev.RolloutFenced)

    async def read() -> None:
        async with MemoryBus(broker).follow(*kinds, start=Start.EARLIEST) as follower:
            async for record in follower:
                seen.messages.append(record.message)

    task = asyncio.create_task(read())
    yield seen
    task.cancel()
    await asyncio.wait([task])


def confirmed(version: int) -> list[ev.PolicyPublished | ev.NodeReported]:
    return [
        ev.PolicyPublished(run="r", version=version, step=version - 1),
        ev.NodeReported(node="n", run="r", state=ev.NODE_STATE_READY, version=version),
    ]


async def test_nothing_is_opened_before_a_node_confirmed_the_initial_policy(broker: MemoryBroker, log: Log) -> None:
    async with running(broker) as dispatcher:
        await dispatcher.start_run(make_spec())
        await eventually(lambda: log.of(ev.RunChanged))
        await asyncio.wait([asyncio.create_task(dispatcher.get_run("r")) for _ in range(3)])
        assert log.of(ev.GroupOpened) == []
        await MemoryBus(broker).publish(*confirmed(1))
        await eventually(lambda: len(log.of(ev.RolloutRequested)) == 1)


async def test_a_killed_dispatcher_goes_on_from_the_log_and_asks_for_nothing_twice(
    broker: MemoryBroker, log: Log
) -> None:
    async with running(broker) as first:
        await first.start_run(make_spec())
        await MemoryBus(broker).publish(*confirmed(1))
        await eventually(lambda: len(log.of(ev.RolloutRequested)) == 1)
    opened = log.of(ev.GroupOpened)[0]
    assert isinstance(opened, ev.GroupOpened)
    ended = ev.GroupAssembled(group=opened.group, purpose=pb.PURPOSE_EVAL, state=ev.GROUP_STATE_EVALUATED, step=0)
    async with running(broker) as second:
        await MemoryBus(broker).publish(ended)
        await eventually(lambda: len(log.of(ev.RolloutRequested)) == 3)
        response = await second.get_run("r")
    assert response.counts.requested == 3
    requests = Counter(str(attempt_id(m.identity)) for m in log.messages if isinstance(m, ev.RolloutRequested))
    assert set(requests.values()) == {1}


async def test_a_crash_between_opening_a_group_and_requesting_its_members_leaves_no_member_out(
    broker: MemoryBroker, log: Log
) -> None:
    group = pb.Identity(run="r", task="h", group="r.e0")
    spec = make_spec()
    spec.eval.num_tasks = 1
    await MemoryBus(broker).publish(
        ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=spec),
        ev.GroupOpened(group=group, size=1, min_size=1, purpose=pb.PURPOSE_EVAL, policy_version=1),
        *confirmed(1),
    )
    async with running(broker):
        await eventually(lambda: log.of(ev.RolloutRequested))
    request = log.of(ev.RolloutRequested)[0]
    assert isinstance(request, ev.RolloutRequested)
    assert str(attempt_id(request.identity)) == "r.e0/0#1"
    assert len(log.of(ev.GroupOpened)) == 1


async def test_wrong_requests_are_refused_by_name(broker: MemoryBroker) -> None:
    async with running(broker) as dispatcher:
        empty, misspelt = make_spec(), make_spec()
        empty.group_size = 0
        misspelt.harnesses[0].harness = "nul"
        with pytest.raises(SpecRejected, match="group_size is 0"):
            await dispatcher.start_run(empty)
        with pytest.raises(SpecRejected, match="harnesses is 'nul'; it must be one of: null"):
            await dispatcher.start_run(misspelt)
        await dispatcher.start_run(make_spec())
        with pytest.raises(RunExists):
            await dispatcher.start_run(make_spec())
        with pytest.raises(ClusterBusy):
            await dispatcher.start_run(make_spec("other"))
        with pytest.raises(RunMissing):
            await dispatcher.get_run("nobody")


async def test_a_stopped_run_gives_up_its_rollouts_and_ends(broker: MemoryBroker, log: Log) -> None:
    async with running(broker) as dispatcher:
        await dispatcher.start_run(make_spec())
        await MemoryBus(broker).publish(*confirmed(1))
        await eventually(lambda: log.of(ev.RolloutRequested))
        await dispatcher.stop_run("r")
        await eventually(lambda: log.of(ev.RolloutFenced))
        fence = log.of(ev.RolloutFenced)[0]
        assert isinstance(fence, ev.RolloutFenced)
        assert fence.is_final
        assert fence.failure.code == "run.stopped"
        group = pb.Identity(run="r", task="h", group=fence.identity.group)
        ended = ev.GroupAssembled(group=group, purpose=pb.PURPOSE_EVAL, state=ev.GROUP_STATE_EVALUATED)
        await MemoryBus(broker).publish(ended)
        await eventually(
            lambda: any(isinstance(m, ev.RunChanged) and m.state == ev.RUN_STATE_STOPPED for m in log.messages)
        )
