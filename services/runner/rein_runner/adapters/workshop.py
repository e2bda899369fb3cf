"""Tasks and harnesses from the libraries that know them; a kept repository per task under `<state>/kept`."""

import asyncio
from pathlib import Path

from rein.v1 import events_pb2 as ev
from rein_harnesses import Harness, HarnessBroken, HarnessNotInstalled, HarnessUnknown, load_harness
from rein_harnesses.install import installed_runtime
from rein_runner.config import RunnerConfig
from rein_runner.errors import HarnessRefused, TaskRefused
from rein_runner.ports import Bench
from rein_sandboxes.errors import SandboxFailed
from rein_sandboxes.ports import PIPE_URL
from rein_sandboxes.trees import copy_repository, keep_repository
from rein_tasks import Task, TaskSet, TaskSetBroken, load_task_set, materialise

DEFAULT_CONTEXT_TOKENS = 200_000


class LocalWorkshop:
    """A `Workshop` over folders of this machine. Reads a task set, and a harness, once."""

    def __init__(self, *, state: Path, tasks_cache: Path, harness_home: Path, own_harnesses: Path | None) -> None:
        self._kept = state / "kept"
        self._tasks_cache = tasks_cache
        self._harness_home = harness_home
        self._own_harnesses = own_harnesses
        self._task_sets: dict[str, TaskSet] = {}
        self._harnesses: dict[str, tuple[Harness, Path | None]] = {}

    @classmethod
    def of(cls, config: RunnerConfig, *, state: Path) -> "LocalWorkshop":
        return cls(
            state=state,
            tasks_cache=config.tasks_cache.resolve(),
            harness_home=config.harness_home.resolve(),
            own_harnesses=config.harnesses,
        )

    async def set_up(self, request: ev.RolloutRequested, *, tree: Path) -> Bench:
        return await asyncio.to_thread(self._set_up, request, tree)

    def _set_up(self, request: ev.RolloutRequested, tree: Path) -> Bench:
        harness, runtime = self._harness(request.harness)
        task = self._task(request)
        kept = self._kept / f"{task.digest}.git"
        try:
            materialise(task, dest=tree, cache=self._tasks_cache)
            keep_repository(tree, target=kept)
            copy_repository(kept, tree=tree)
        except TaskSetBroken as error:
            raise TaskRefused("task.broken", str(error)) from error
        except OSError as error:
            raise SandboxFailed("sandbox.no_tree", f"the tree of {task.name} cannot be written: {error}") from error
        command = harness.command(
            instruction=task.instruction,
            base_url=PIPE_URL,
            max_context_tokens=request.limits.context_tokens or DEFAULT_CONTEXT_TOKENS,
        )
        return Bench(kept=kept, command=command, harness_version=harness.version, runtime=runtime)

    def _harness(self, name: str) -> tuple[Harness, Path | None]:
        if name not in self._harnesses:
            try:
                harness = load_harness(name, own=self._own_harnesses)
                runtime = installed_runtime(harness, home=self._harness_home)
            except HarnessUnknown as error:
                raise HarnessRefused("operator.harness_unknown", str(error)) from error
            except HarnessBroken as error:
                raise HarnessRefused("operator.harness_broken", str(error)) from error
            except HarnessNotInstalled as error:
                raise HarnessRefused("operator.harness_not_installed", str(error)) from error
            self._harnesses[name] = (harness, runtime)
        return self._harnesses[name]

    def _task(self, request: ev.RolloutRequested) -> Task:
        name, folder = request.identity.task, request.task_set
        task = self._find(folder, name=name)
        if task is None or task.digest != request.task_digest:
            self._task_sets.pop(folder, None)  # it may have been made anew since
            task = self._find(folder, name=name)
        if task is None:
            raise TaskRefused("task.unknown", f"{folder} has no task {name!r}")
        if task.digest != request.task_digest:
            detail = f"{name} in {folder} is {task.digest[:12]} here, the dispatcher meant {request.task_digest[:12]}"
            raise TaskRefused("task.digest_mismatch", f"{detail}; give all services the same task set")
        return task

    def _find(self, folder: str, *, name: str) -> Task | None:
        if folder not in self._task_sets:
            try:
                self._task_sets[folder] = load_task_set(Path(folder))
            except TaskSetBroken as error:
                raise TaskRefused("task.set_broken", str(error)) from error
        return self._task_sets[folder].by_name.get(name)
