"""A learner killed anywhere trains every group once, in order, and goes on where it stopped."""

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein.v1 import weights_pb2 as wt
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_learner.adapters.checkpoints import CheckpointFolder
from rein_learner.course import Means
from rein_learner.domain.record import Record
from rein_learner.ports import Checkpoint, Lecture, Studied, Written
from rein_learner.service import Learner
from rein_objectives import Agreement
from rein_service.clock import FakeClock
from rein_service.testing import eventually
from rein_tokens import PackedGroup, Row
from rein_transfer.errors import VersionTaken
from rein_transfer.manifest import digest_of

STEPS, GROUPS_PER_STEP = 3, 2
ALL = [f"r.g{number}" for number in range(STEPS * GROUPS_PER_STEP)]

SPEC = ev.RunSpec(
    name="r",
    model="unused",
    groups_per_step=GROUPS_PER_STEP,
    steps=STEPS,
    max_staleness_versions=1,
    objective=ev.Objective(min_correlation=0.99),
)


class Killed(Exception):
    """The process ends here (a test's doing)."""


class World:
    """What outlives a learner: disk, weight server, broker; and where the next kill happens."""

    def __init__(self, state: Path) -> None:
        self.broker = MemoryBroker()
        self.state = state
        self.published: dict[int, str] = {}
        """The weight server: digest by version."""
        self.kill_at: Counter[str] = Counter()
        self.studied = Studied(loss=0.5, grad_norm=1.0, clip_fraction=0.0, agreement=Agreement(99, 1.0, 0.0), num_cut=0)
        """What every step finds."""

    def point(self, name: str) -> None:
        """Die here if the test wants it, once."""
        self.kill_at[name] -= 1
        if self.kill_at[name] == 0:
            raise Killed(name)


class Memoriser:
    """A student whose weights are the list of groups it was trained on, in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: list[str] = []
        self._studied: list[str] = []

    async def study(self, lecture: Lecture) -> Studied:
        self._world.point("study")
        self._studied = list(dict.fromkeys(f"r.g{row.token_ids[0]}" for row in lecture.rows))
        return self._world.studied

    async def update(self) -> None:
        self._known += self._studied
        self._world.point("updated")

    async def write(self, folder: Path) -> Written:
        (folder / "model.safetensors").write_text(json.dumps(self._known))
        self._world.point("written")
        return Written(digest_of(folder / "model.safetensors"), wt.Probe(token_ids=[1, 2], logprobs=[-1.0]))

    async def restore(self, folder: Path) -> None:
        self._known = json.loads((folder / "model.safetensors").read_text())

    async def export(self, folder: Path) -> None:
        self._world.point("export")
        folder.mkdir(exist_ok=True)
        (folder / "known.json").write_text(json.dumps(self._known))


class OneSeat:
    def __init__(self, world: World) -> None:
        self._world = world

    async def enrol(self, spec: ev.RunSpec) -> Memoriser:
        return Memoriser(self._world)


class Shelves(CheckpointFolder):
    """The real thing, which may be killed around its one instant."""

    def __init__(self, world: World) -> None:
        super().__init__(world.state)
        self._world = world

    async def commit(self, folder: Path, *, record: Record) -> Checkpoint:
        self._world.point("commit")
        checkpoint = await super().commit(folder, record=record)
        self._world.point("committed")
        return checkpoint


class Server:
    """A weight server that keeps what it took, whoever dies."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def publish(self, fields: wt.WeightManifest, *, weights: Path) -> wt.WeightManifest:
        self._world.point("publish")
        digest = digest_of(weights)
        if self._world.published.setdefault(fields.version, digest) != digest:
            raise VersionTaken(run=fields.run, version=fields.version, detail="")
        self._world.point("published")
        return fields


class Rows:
    """Every group has one row per member that names the group."""

    async def of_group(self, ref: pb.BlobRef) -> PackedGroup:
        ids = np.array([int(ref.sha256), 7], dtype=np.uint32)
        rows = [
            Row(member, ids, np.array([False, True]), np.array([1], dtype=np.uint32),
                np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.uint32))
            for member in range(2)
        ]  # fmt: skip
        return PackedGroup(tuple(rows))


class MortalBus(MemoryBus):
    """A connection whose owner may be killed before or after it published."""

    world: World

    async def publish(self, *messages: Message) -> list[object]:  # type: ignore[override]
        self.world.point("events")
        places = await super().publish(*messages)
        self.world.point("announced")
        return list(places)


def group(number: int, *, rewards: tuple[float, float] = (1.0, 0.0)) -> ev.GroupAssembled:
    name, step = f"r.g{number}", number // GROUPS_PER_STEP + 1
    members = [
        ev.MemberOutcome(identity=pb.Identity(run="r", group=name, member=index, attempt=1), reward=reward)
        for index, reward in enumerate(rewards)
    ]
    return ev.GroupAssembled(
        group=pb.Identity(run="r", task="t", group=name),
        state=ev.GROUP_STATE_READY,
        members=members,
        arrays=pb.BlobRef(sha256=str(number)),
        min_version=step,
        max_version=step,
        step=step,
    )


async def publish(world: World, *messages: Message) -> None:
    await MemoryBus(world.broker).publish(*messages)


async def begin(world: World) -> None:
    await publish(world, ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=SPEC))


@asynccontextmanager
async def running(world: World) -> AsyncIterator[asyncio.Task[None]]:
    """A learner at work; leaving the block kills it without a drain."""
    bus = MortalBus(world.broker)
    bus.world = world
    means = Means(bus, OneSeat(world), Shelves(world), Server(world), Rows(), FakeClock())  # type: ignore[arg-type]
    task = asyncio.create_task(Learner(means).run(asyncio.Event()))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


class Seen:
    """What a stranger reads."""

    def __init__(self) -> None:
        self.steps: list[ev.StepCompleted] = []
        self.policies: list[tuple[int, int]] = []
        """Version and step."""
        self.alerts: list[tuple[str, int]] = []
        """Code and severity."""

    def add(self, event: Message) -> None:
        match event:
            case ev.StepCompleted():
                self.steps.append(event)
            case ev.PolicyPublished():
                self.policies.append((event.version, event.step))
            case ev.AlertRaised():
                self.alerts.append((event.code, event.severity))

    @property
    def groups(self) -> dict[int, list[str]]:
        """Groups trained on, by step; every repetition of a step's event must equal the first."""
        by_step: dict[int, ev.StepCompleted] = {}
        for step in self.steps:
            assert by_step.setdefault(step.step, step) == step
        return {number: list(step.groups) for number, step in by_step.items()}


@pytest.fixture
async def seen(world: World) -> AsyncIterator[Seen]:
    found = Seen()

    async def read() -> None:
        kinds = (ev.StepCompleted, ev.PolicyPublished, ev.AlertRaised)
        async with MemoryBus(world.broker).follow(*kinds) as follower:
            async for record in follower:
                found.add(record.message)

    task = asyncio.create_task(read())
    yield found
    task.cancel()
    await asyncio.wait([task])


def known(world: World) -> list[str]:
    """What the exported policy was trained on."""
    path = world.state / "r" / "final" / "known.json"
    return list(json.loads(path.read_text())) if path.exists() else []


async def has_died(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task], timeout=10)
    with pytest.raises(ExceptionGroup) as caught:
        await task
    assert caught.group_contains(Killed, depth=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


BY_STEP = {1: ALL[0:2], 2: ALL[2:4], 3: ALL[4:6]}


async def test_every_group_is_trained_on_once_in_order(world: World, seen: Seen) -> None:
    await begin(world)
    await publish(world, *(group(number) for number in (5, 4, 0, 1, 3, 2, 2)))
    async with running(world):
        await eventually(lambda: len(seen.steps) == STEPS)
    assert known(world) == ALL
    assert seen.groups == BY_STEP
    assert seen.policies == [(1, 0), (2, 1), (3, 2), (4, 3)]


POINTS = ("study", "updated", "written", "commit", "committed", "publish", "published", "events", "announced", "export")


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("point", POINTS)
async def test_a_learner_killed_at_any_point_leaves_nothing_out_and_repeats_nothing(
    world: World, seen: Seen, point: str, number: int
) -> None:
    """The number-th time that point is passed; the first time is often that of the initial policy."""
    await begin(world)
    await publish(world, *(group(each) for each in range(3)))
    world.kill_at[point] = number
    async with running(world) as task:
        await publish(world, *(group(each) for each in range(3, 6)))
        await eventually(lambda: task.done() or STEPS in seen.groups)
        if task.done():
            await has_died(task)
    async with running(world):
        await eventually(lambda: STEPS in seen.groups)
    assert known(world) == ALL
    assert seen.groups == BY_STEP
    assert sorted(world.published) == [1, 2, 3, 4]


async def test_a_damaged_newest_checkpoint_is_passed_over_by_name(world: World, seen: Seen) -> None:
    await begin(world)
    await publish(world, *(group(number) for number in range(4)))
    async with running(world):
        await eventually(lambda: 3 in world.published)
        await eventually((world.state / "r" / "checkpoints" / "step-000002").exists)
    (world.state / "r" / "checkpoints" / "step-000002" / "model.safetensors").write_text("[]")
    async with running(world):
        await publish(world, *(group(number) for number in range(4, 6)))
        await eventually(lambda: known(world) == ALL)
    assert ("checkpoint.damaged", ev.SEVERITY_WARNING) in seen.alerts


async def test_a_run_whose_checkpoints_are_all_damaged_is_stopped_and_not_begun_anew(world: World, seen: Seen) -> None:
    await begin(world)
    async with running(world):
        await eventually(lambda: 1 in world.published)
    for path in (world.state / "r" / "checkpoints").glob("*/checkpoint.json"):
        path.write_text("{}")
    async with running(world):
        await eventually(lambda: ("checkpoint.all_damaged", ev.SEVERITY_STOP) in seen.alerts)


@pytest.mark.parametrize(
    ("studied", "code"),
    [
        (Studied(math.nan, 1.0, 0.0, None, 0), "learner.loss_not_finite"),
        (Studied(0.0, math.inf, 0.0, None, 0), "learner.loss_not_finite"),
        (Studied(0.0, 1.0, 0.0, Agreement(99, 0.98, 1.0), 0), "learner.correlation_low"),
        (Studied(0.0, 1.0, 0.0, Agreement(99, math.nan, 1.0), 0), "learner.correlation_low"),
    ],
)
async def test_a_step_that_cannot_be_right_updates_nothing_and_stops_the_run(
    world: World, seen: Seen, studied: Studied, code: str
) -> None:
    world.studied = studied
    await begin(world)
    await publish(world, *(group(number) for number in range(6)))
    async with running(world) as task:
        await eventually(lambda: (code, ev.SEVERITY_STOP) in seen.alerts)
        assert not task.done()
        await publish(world, ev.RunChanged(run="r", state=ev.RUN_STATE_FAILED, spec=SPEC))
    assert seen.steps == []
    assert list(world.published) == [1]


async def test_a_weight_server_that_holds_other_bytes_stops_the_run(world: World, seen: Seen) -> None:
    world.published[1] = "somebody else's"
    await begin(world)
    async with running(world):
        await eventually(lambda: ("transfer.version_taken", ev.SEVERITY_STOP) in seen.alerts)


async def test_a_step_without_any_signal_is_a_step_with_the_same_weights(world: World, seen: Seen) -> None:
    await begin(world)
    await publish(world, *(group(number, rewards=(1.0, 1.0)) for number in range(2)))
    await publish(world, *(group(number) for number in range(2, 6)))
    async with running(world):
        await eventually(lambda: len(seen.steps) == STEPS)
    assert known(world) == ALL[2:]
    first = seen.steps[0]
    assert list(first.groups) == []
    assert {each.failure.code for each in first.skipped} == {"group.no_signal"}
    assert world.published[1] == world.published[2]


async def test_only_the_newest_checkpoints_are_kept(world: World) -> None:
    await begin(world)
    await publish(world, *(group(number) for number in range(6)))
    async with running(world):
        await eventually(lambda: STEPS + 1 in world.published)
    names = sorted(path.name for path in (world.state / "r" / "checkpoints").iterdir())
    assert names == ["step-000002", "step-000003"]


async def test_a_run_stopped_early_leaves_its_policy_and_the_next_run_is_served(world: World) -> None:
    await begin(world)
    await publish(world, *(group(number) for number in range(2)))
    async with running(world):
        await eventually(lambda: 2 in world.published)
        await publish(world, ev.RunChanged(run="r", state=ev.RUN_STATE_STOPPED, spec=SPEC))
        await eventually(lambda: known(world) == ALL[:2])
        other = ev.RunSpec()
        other.CopyFrom(SPEC)
        other.name = "s"
        await publish(world, ev.RunChanged(run="s", state=ev.RUN_STATE_RUNNING, spec=other))
        await eventually((world.state / "s" / "checkpoints" / "step-000000").exists)


async def test_draining_ends_the_loop(world: World) -> None:
    await begin(world)
    bus = MemoryBus(world.broker)
    means = Means(bus, OneSeat(world), Shelves(world), Server(world), Rows(), FakeClock())
    draining = asyncio.Event()
    task = asyncio.create_task(Learner(means).run(draining))
    await eventually(lambda: 1 in world.published)
    draining.set()
    await asyncio.wait_for(task, timeout=5)
