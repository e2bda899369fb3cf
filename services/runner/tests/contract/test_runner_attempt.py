"""A whole attempt with the real parts: workshop, sandbox, harness, pipe, patch; only the model is scripted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobStore
from rein_harnesses.standin import StandIn, stand_in
from rein_runner.adapters.gateway import open_gateway
from rein_runner.adapters.workshop import LocalWorkshop
from rein_runner.attempt import Attempt, AttemptSettings, Means
from rein_sandboxes.bubblewrap import Bubblewrap, open_bubblewrap
from rein_sandboxes.root import root_folder
from rein_sandboxes.settings import SandboxSettings
from rein_service.clock import SystemClock
from rein_service.testing import eventually
from rein_tasks import Task, load_task_set

pytestmark = pytest.mark.sandbox

CHECKOUT = Path(__file__).parents[4]
VAR = CHECKOUT / "var"
TASK_SET = CHECKOUT / "deploy/demo/tasks"
MINI_DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.fixture
def task() -> Task:
    found = load_task_set(TASK_SET).tasks[0]
    if not (VAR / "tasks/packages" / found.package.folder_name).is_dir():
        pytest.skip("the demo's packages are not on this machine: make setup")
    return found


@pytest.fixture
async def sandboxes() -> AsyncIterator[Bubblewrap]:
    has_root = root_folder(VAR / "sandboxes").is_dir()
    async with open_bubblewrap(SandboxSettings(home=VAR / "sandboxes", base="root" if has_root else "host")) as opened:
        yield opened


def request(task: Task, *, harness: str, wall_s: float = 60.0) -> ev.RolloutRequested:
    return ev.RolloutRequested(
        identity=pb.Identity(run="r", task=task.name, group="r.g0", member=3, attempt=1),
        purpose=pb.PURPOSE_TRAIN,
        harness=harness,
        task_set=str(TASK_SET),
        task_digest=task.digest,
        limits=pb.Limits(wall_s=wall_s, memory_bytes=1 << 30, processes=200, context_tokens=4096),
        lease_s=30.0,
    )


async def attempted(
    wanted: ev.RolloutRequested, *, model: StandIn, sandboxes: Bubblewrap, folder: Path
) -> ev.RolloutFinished:
    clock = SystemClock()
    workshop = LocalWorkshop(
        state=folder, tasks_cache=VAR / "tasks", harness_home=VAR / "harnesses", own_harnesses=None
    )
    settings = AttemptSettings(
        state=folder, instance="one", grant_secret=b"secret", max_patch_bytes=1 << 20, gateway_patience_s=0.5
    )
    async with open_gateway([model.url], clock=clock, patience_s=0.5) as gateway:
        means = Means(
            sandboxes=sandboxes,
            workshop=workshop,
            gateway=gateway,
            blobs=BlobStore(str(folder / "blobs")),
            clock=clock,
            settings=settings,
        )
        finished = await Attempt(wanted, means=means).run()
    assert list((folder / "live").iterdir()) == []
    return finished


@pytest.mark.parametrize("harness", ["claude-code", "mini-swe-agent"])
async def test_a_harness_leaves_the_patch_of_its_repair(
    harness: str, task: Task, sandboxes: Bubblewrap, tmp_path: Path
) -> None:
    if not list((VAR / "harnesses").glob(f"{harness}-*")):
        pytest.skip("the harness is not on this machine: make setup")
    repair = f"sed -i '{task.line}s|.*|repaired = True|' {task.path}"
    script = (f"sed -n {task.line}p {task.path}", "git log --oneline --all", repair)
    async with stand_in((*script, MINI_DONE) if harness == "mini-swe-agent" else script) as model:
        event = await attempted(request(task, harness=harness), model=model, sandboxes=sandboxes, folder=tmp_path)
        talk = str([each.body for each in model.seen])
    assert not event.HasField("failure"), event.failure
    assert event.num_turns == 4
    patch = (await BlobStore(str(tmp_path / "blobs")).get(event.patch)).decode()
    assert f"-{task.fault.new}\n+repaired = True\n" in patch
    assert patch.count("diff --git") == 1
    assert task.instruction in talk
    assert talk.count(" Task") >= 1
    assert (event.cpu_s > 0, event.peak_memory_bytes > 0, event.wall_s > 0) == (True, True, True)


async def test_an_attempt_that_is_cancelled_leaves_nothing(task: Task, sandboxes: Bubblewrap, tmp_path: Path) -> None:
    async with stand_in() as model:
        model.silent = True
        wanted = request(task, harness="null")
        running = asyncio.create_task(attempted(wanted, model=model, sandboxes=sandboxes, folder=tmp_path))
        await eventually(lambda: len(model.seen) == 1)
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    assert list((tmp_path / "live").iterdir()) == []


async def test_a_model_that_only_fails_is_inferences(task: Task, sandboxes: Bubblewrap, tmp_path: Path) -> None:
    async with stand_in() as model:
        model.status = 503
        event = await attempted(request(task, harness="null"), model=model, sandboxes=sandboxes, folder=tmp_path)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_INFERENCE, "inference.no_turns")


async def test_an_unknown_harness_lists_the_known(task: Task, sandboxes: Bubblewrap, tmp_path: Path) -> None:
    async with stand_in() as model:
        event = await attempted(request(task, harness="claud"), model=model, sandboxes=sandboxes, folder=tmp_path)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_OPERATOR, "operator.harness_unknown")
    assert "known: claude-code" in event.failure.detail


async def test_another_digest_is_the_tasks(task: Task, sandboxes: Bubblewrap, tmp_path: Path) -> None:
    wanted = request(task, harness="null")
    wanted.task_digest = "0" * 64
    async with stand_in() as model:
        event = await attempted(wanted, model=model, sandboxes=sandboxes, folder=tmp_path)
    assert (event.failure.owner, event.failure.code) == (pb.OWNER_TASK, "task.digest_mismatch")
