"""The provider for a single machine: bubblewrap, control groups where they can be had, measuring where not.

Fails closed: a sandbox counts only once `inside_check.sh` has proved its walls from inside and before the command has
run; anything doubtful raises `SandboxFailed`. Whatever way `run` ends, all processes of the sandbox are dead, its pipe
is cut and its control group is gone.
"""

import asyncio
import logging
import os
import resource
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rein_sandboxes import cgroups, measuring
from rein_sandboxes.arguments import CHECK_PASSED, Base, bwrap_arguments
from rein_sandboxes.cgroups import ControlGroup, ControlGroups
from rein_sandboxes.errors import SandboxesUnusable, SandboxFailed
from rein_sandboxes.etc import host_etc
from rein_sandboxes.launch import Exit, Launch
from rein_sandboxes.netns import listen_inside
from rein_sandboxes.output import OutputReader
from rein_sandboxes.pipe import Pipe, open_pipe
from rein_sandboxes.ports import PIPE_URL, Ending, PipeUse, SandboxLimits, SandboxResult, SandboxSpec
from rein_sandboxes.root import find_root
from rein_sandboxes.settings import SandboxSettings

log = logging.getLogger(__name__)

MEASURE_EVERY_S = 0.2
#: Processes looked at in one measurement where their number has no limit.
MOST_MEASURED = 10_000
#: Of its memory limit; a sandbox killed for memory below it was killed by the machine's need, not by its own.
OWN_FAULT_SHARE = 0.8
PIPE_PORT = int(PIPE_URL.rpartition(":")[2])


class Bubblewrap:
    """A `SandboxProvider`; open it with `open_bubblewrap`."""

    def __init__(self, *, base: Base, settings: SandboxSettings, groups: ControlGroups | None) -> None:
        self._base = base
        self._settings = settings
        self._groups = groups

    async def run(self, spec: SandboxSpec) -> SandboxResult:
        self._require_disk(spec.scratch)
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            group = self._group(spec, stack=stack)
            launch = await self._launch(spec)
            stack.callback(launch.close)
            stack.push_async_callback(_ensure_dead, launch)
            watch = _Watch(launch=launch, group=group, limits=spec.limits)
            reader = watch.read(launch.output)
            stack.callback(reader.close)
            pipe = await _confine(spec, launch=launch, group=group, stack=stack)
            started_s = loop.time()
            launch.release()
            await self._require_check(reader, launch=launch)
            stack.enter_context(watch)
            ended = await watch.end(deadline_s=started_s + spec.limits.wall_s)
            await self._require_silence(reader)
            self._require_disk(spec.scratch)  # what ran on a full disk says nothing
            return SandboxResult(
                ending=watch.ending,
                exit_status=ended.status,
                output=reader.kept(),
                num_output_bytes=reader.num_bytes,
                wall_s=loop.time() - started_s,
                cpu_s=ended.cpu_s,
                peak_memory_bytes=group.peak_memory_bytes() if group else watch.peak_memory_bytes or None,
                pipe=pipe.use() if pipe else PipeUse(),
            )

    def _require_disk(self, folder: Path) -> None:
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < self._settings.min_free_bytes:
            raise SandboxFailed("sandbox.disk_full", f"the disk of {folder} has {free_bytes >> 20} MiB left; make room")

    def _group(self, spec: SandboxSpec, *, stack: AsyncExitStack) -> ControlGroup | None:
        if self._groups is None:
            return None
        limits = spec.limits
        try:
            group = self._groups.make(spec.name, memory_bytes=limits.memory_bytes, processes=limits.processes)
        except OSError as error:
            raise SandboxFailed("sandbox.no_control_group", f"{spec.name}: {error}") from error
        stack.callback(group.remove)
        return group

    async def _launch(self, spec: SandboxSpec) -> Launch:
        files = {inside: spec.scratch / f"file-{n}" for n, inside in enumerate(spec.files)}
        for inside, host in files.items():
            host.write_bytes(spec.files[inside])
        arguments = bwrap_arguments(spec, base=self._base, files=files)
        return await Launch.start(arguments, bwrap=self._settings.bwrap, patience_s=self._settings.start_s)

    async def _require_check(self, reader: OutputReader, *, launch: Launch) -> None:
        try:
            said = await asyncio.wait_for(reader.head(len(CHECK_PASSED)), self._settings.start_s)
        except TimeoutError as error:
            raise SandboxFailed("sandbox.check_failed", "the check from inside did not come to an end") from error
        if said != CHECK_PASSED:
            await launch.end()
            detail = (said + reader.kept()).decode(errors="replace").strip()
            raise SandboxFailed("sandbox.check_failed", f"the sandbox is not tight: {detail[:500]}")

    async def _require_silence(self, reader: OutputReader) -> None:
        try:
            await asyncio.wait_for(reader.ended(), self._settings.start_s)
        except TimeoutError as error:
            raise SandboxFailed("sandbox.undead", "something still holds the output of an ended sandbox") from error


@asynccontextmanager
async def open_bubblewrap(settings: SandboxSettings) -> AsyncIterator[Bubblewrap]:
    """A provider that has been tried. Raises SandboxesUnusable."""
    home = settings.home.resolve()
    if shutil.which(settings.bwrap) is None:
        raise SandboxesUnusable("sandbox.no_bwrap", f"{settings.bwrap} is not installed; `apt-get install bubblewrap`")
    home.mkdir(parents=True, exist_ok=True)
    base = _host_base(home) if settings.base == "host" else _root_base(home)
    _allow_descriptors()
    groups = cgroups.find_control_groups()
    if groups is None:
        log.warning("sandbox.no_control_groups", extra={"detail": "memory and processes are limited by measuring"})
    elif num_swept := cgroups.sweep(groups):
        log.info("sandbox.groups_swept", extra={"num_groups": num_swept})
    provider = Bubblewrap(base=base, settings=settings, groups=groups)
    await _try(provider, home=home)
    yield provider


def _allow_descriptors() -> None:
    """A sandbox takes half a dozen descriptors; the usual soft limit is enough for 150 of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _root_base(home: Path) -> Base:
    root = find_root(home)
    return Base(usr=root / "usr", etc=root / "etc")


def _host_base(home: Path) -> Base:
    log.warning("sandbox.host_base", extra={"detail": "sandboxes see this machine's /usr, read-only"})
    return Base(usr=Path("/usr"), etc=host_etc(home))


async def _try(provider: Bubblewrap, *, home: Path) -> None:
    """Run one, so that a machine that cannot is named at start."""
    scratch = home / f"trial-{os.getpid()}"
    scratch.mkdir(exist_ok=True)
    spec = SandboxSpec(
        name=scratch.name, argv=("/bin/true",), scratch=scratch, limits=SandboxLimits(wall_s=30.0, memory_bytes=1 << 28)
    )
    try:
        await provider.run(spec)
    except SandboxFailed as error:
        remedy = (
            "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone), or run as root"
        )
        raise SandboxesUnusable("sandbox.unusable", f"{error.detail}; {remedy}") from error
    finally:
        shutil.rmtree(scratch)


async def _confine(
    spec: SandboxSpec, *, launch: Launch, group: ControlGroup | None, stack: AsyncExitStack
) -> Pipe | None:
    """Put limits and the pipe around the first process, which has not run yet."""
    try:
        if group is not None:
            group.add(launch.first_pid)
        _limit(launch.first_pid, spec.limits)
    except OSError as error:
        raise SandboxFailed("sandbox.no_limits", f"limits could not be set: {error}") from error
    if spec.pipe is None:
        return None
    listener = await listen_inside(launch.first_pid, port=PIPE_PORT)
    return await stack.enter_async_context(open_pipe(listener, target=spec.pipe))


def _limit(pid: int, limits: SandboxLimits) -> None:
    cpu_s = int(limits.wall_s) + 1
    for name, bound in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 4096),
    ):
        resource.prlimit(pid, name, (bound, bound))


async def _ensure_dead(launch: Launch) -> None:
    """Also when this task is cancelled (again) meanwhile."""
    ending = asyncio.ensure_future(launch.end())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait([ending])
        raise


@dataclass(slots=True)
class _Watch:
    """Ends the sandbox for the first limit it reaches, and remembers which."""

    launch: Launch
    group: ControlGroup | None
    limits: SandboxLimits
    ending: Ending = Ending.EXITED
    peak_memory_bytes: int = 0
    _alarm: int | None = None
    _timers: list[asyncio.TimerHandle] = field(default_factory=list)

    def read(self, descriptor: int) -> OutputReader:
        return OutputReader(
            descriptor,
            kept_bytes=self.limits.kept_output_bytes,
            most_bytes=self.limits.output_bytes,
            on_flood=lambda: self._stop(Ending.OUTPUT_FLOOD),
        )

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        if self.group is None:
            self._measure()
        elif self.limits.memory_bytes is not None and (alarm := self.group.alarm()) is not None:
            self._alarm = alarm
            loop.add_reader(alarm, self._stop, Ending.OUT_OF_MEMORY)

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()
        if self._alarm is not None:
            asyncio.get_running_loop().remove_reader(self._alarm)
            os.close(self._alarm)

    async def end(self, *, deadline_s: float) -> Exit:
        """Wait for the sandbox to end, or end it."""
        timer = asyncio.get_running_loop().call_at(deadline_s, self._stop, Ending.OUT_OF_TIME)
        try:
            ended = await self.launch.wait()
        finally:
            timer.cancel()
        if self.group is not None and self.ending is Ending.EXITED and self.group.num_memory_kills():
            self.ending = Ending.OUT_OF_MEMORY
        if self.ending is Ending.OUT_OF_MEMORY:
            self._require_own_fault()
        return ended

    def _require_own_fault(self) -> None:
        """A machine that is out of memory kills whom it likes; that is no limit of this sandbox."""
        peak = self.group.peak_memory_bytes() if self.group else self.peak_memory_bytes
        limit = self.limits.memory_bytes
        if limit is None or (peak is not None and peak < OWN_FAULT_SHARE * limit):
            raise SandboxFailed(
                "sandbox.host_out_of_memory", f"the machine ran out of memory (the sandbox used {peak} bytes)"
            )

    def _stop(self, ending: Ending) -> None:
        if self.ending is Ending.EXITED:
            self.ending = ending
        if self._alarm is not None:
            asyncio.get_running_loop().remove_reader(self._alarm)
        self.launch.kill()

    def _measure(self) -> None:
        most = self.limits.processes or MOST_MEASURED
        load = measuring.measure(self.launch.first_pid, most_processes=most)
        self.peak_memory_bytes = max(self.peak_memory_bytes, load.memory_bytes)
        if self.limits.memory_bytes is not None and load.memory_bytes > self.limits.memory_bytes:
            self._stop(Ending.OUT_OF_MEMORY)
        elif self.limits.processes is not None and load.num_processes > self.limits.processes:
            self._stop(Ending.OUT_OF_PROCESSES)
        else:
            self._timers[:] = [asyncio.get_running_loop().call_later(MEASURE_EVERY_S, self._measure)]
