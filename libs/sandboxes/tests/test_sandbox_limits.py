"""Limits end a sandbox, and whatever its end, nothing of it is left. Every test runs a real sandbox."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rein_sandboxes.bubblewrap import Bubblewrap, open_bubblewrap
from rein_sandboxes.cgroups import PREFIX, GroupsV2, find_control_groups, sweep
from rein_sandboxes.errors import SandboxesUnusable, SandboxFailed
from rein_sandboxes.ports import Ending, SandboxLimits, SandboxResult, SandboxSpec
from rein_sandboxes.settings import SandboxSettings
from rein_service.testing import eventually

pytestmark = pytest.mark.sandbox

Run = Callable[..., Awaitable[SandboxResult]]
SpecOf = Callable[..., SandboxSpec]

HOG = "python3 -c 'x = []\nwhile True: x.append(bytearray(8 << 20))'"
FORK_BOMB = "b() { b | b & }; b; sleep 30"
MANY = "for n in $(seq 100); do sleep 30 & done; wait"


def processes_with(word: str) -> list[int]:
    """Live processes whose command line has `word`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def test_out_of_time_even_when_signals_are_ignored(run: Run) -> None:
    script = "trap '' TERM INT HUP; while :; do sleep 7135; done"
    result = await run(script, limits=SandboxLimits(wall_s=0.5))
    assert result.ending is Ending.OUT_OF_TIME
    assert result.exit_status == -9
    assert result.wall_s < 3
    assert not processes_with("7135")


async def test_a_background_process_dies_with_the_command(run: Run) -> None:
    result = await run("setsid nohup sleep 7136 >/dev/null 2>&1 & (setsid sleep 7136 &) ; echo done")
    assert result.output == b"done\n"
    assert result.ending is Ending.EXITED
    assert not processes_with("7136")


async def test_too_much_output_ends_it_and_is_not_kept(run: Run) -> None:
    limits = SandboxLimits(wall_s=20, kept_output_bytes=1000, output_bytes=100_000)
    result = await run("yes", limits=limits)
    assert result.ending is Ending.OUTPUT_FLOOD
    assert len(result.output) == 1000


async def test_the_newest_output_is_kept(run: Run) -> None:
    result = await run("seq 100000", limits=SandboxLimits(wall_s=20, kept_output_bytes=14))
    assert result.output == b"\n99999\n100000\n"
    assert result.num_output_bytes == 588895


async def test_a_memory_hog_is_ended(run: Run) -> None:
    result = await run(HOG)
    assert result.ending is Ending.OUT_OF_MEMORY
    assert result.peak_memory_bytes is not None
    assert result.peak_memory_bytes <= 256 << 20


async def test_files_in_memory_count_as_memory(run: Run) -> None:
    result = await run("head -c 1000000000 /dev/zero > /tmp/x; head -c 1000000000 /dev/zero > /dev/shm/x")
    assert result.ending is not Ending.EXITED or result.exit_status != 0


async def test_a_fork_bomb_is_contained(run: Run) -> None:
    result = await run(FORK_BOMB, limits=SandboxLimits(wall_s=1.5, processes=40, memory_bytes=256 << 20))
    assert result.ending in {Ending.OUT_OF_TIME, Ending.OUTPUT_FLOOD, Ending.EXITED}
    assert result.wall_s < 5


@pytest.mark.parametrize(("script", "ending"), [(HOG, Ending.OUT_OF_MEMORY), (MANY, Ending.OUT_OF_PROCESSES)])
async def test_limits_hold_without_control_groups(
    provider: Bubblewrap, sandbox_settings: SandboxSettings, shell: SpecOf, script: str, ending: Ending
) -> None:
    measuring = Bubblewrap(base=provider._base, settings=sandbox_settings, groups=None)
    limits = SandboxLimits(wall_s=20, memory_bytes=128 << 20, processes=40, output_bytes=1 << 20)
    result = await measuring.run(shell(script, limits=limits))
    assert result.ending is ending


async def test_a_file_cannot_grow_without_bound(run: Run) -> None:
    result = await run("head -c 3000000 /dev/zero > big", limits=SandboxLimits(wall_s=20, file_bytes=1_000_000))
    assert result.exit_status != 0


async def test_exit_status_and_signals_are_told_apart(run: Run) -> None:
    assert (await run("exit 7")).exit_status == 7
    assert (await run("kill -SEGV $$")).exit_status == -11


async def test_cpu_time_covers_every_process(run: Run) -> None:
    busy = "python3 -c 'import time\nwhile time.process_time() < 0.2: pass'"
    result = await run(f"{busy} & {busy} & wait")
    assert result.cpu_s is not None
    assert 0.4 < result.cpu_s < 1.5


async def test_cancelling_kills_everything_inside_first(run: Run, tmp_path: Path, workspace: Path) -> None:
    running = asyncio.ensure_future(run("touch started; (setsid sleep 7137 &); sleep 7137"))
    await eventually((workspace / "started").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not processes_with("7137")


async def test_control_groups_are_gone_afterwards(run: Run) -> None:
    groups = find_control_groups()
    if groups is None:
        pytest.skip("no control groups on this machine")
    await run("true")
    assert not [path for folder in groups.folders for path in folder.glob(f"{PREFIX}{os.getpid()}-*")]


def test_a_sweep_takes_groups_of_dead_makers_only(tmp_path: Path) -> None:
    for name in ("rein-4194304-dead", f"rein-{os.getpid()}-living", "other"):
        (tmp_path / name).mkdir()
    assert sweep(GroupsV2(parent=tmp_path)) == 1
    assert {path.name for path in tmp_path.iterdir()} == {f"rein-{os.getpid()}-living", "other"}


async def test_the_kernels_view_of_descriptors_does_not_grow(run: Run) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await run("true")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_command_that_does_not_exist_is_its_own_failure(provider: Bubblewrap, shell: SpecOf) -> None:
    assert (await provider.run(shell("/nowhere/harness"))).exit_status == 127


async def test_a_writable_place_nobody_declared_is_refused(
    provider: Bubblewrap, sandbox_settings: SandboxSettings, shell: SpecOf, tmp_path: Path
) -> None:
    """The check from inside does not trust the arguments that built the sandbox."""
    wrapper = tmp_path / "bwrap"
    wrapper.write_text('#!/bin/bash\nargs=("$@")\nexec bwrap "${args[@]:0:4}" --tmpfs /srv "${args[@]:4}"\n')
    wrapper.chmod(0o755)
    loose = sandbox_settings.model_copy(update={"bwrap": str(wrapper)})
    with pytest.raises(SandboxFailed, match="/srv is writable"):
        await Bubblewrap(base=provider._base, settings=loose, groups=None).run(shell("echo ran"))


async def test_a_machine_without_bubblewrap_is_named(tmp_path: Path) -> None:
    settings = SandboxSettings(home=tmp_path, bwrap="no-such-bwrap", base="host")
    with pytest.raises(SandboxesUnusable, match="no-such-bwrap is not installed"):
        async with open_bubblewrap(settings):
            pass


async def test_a_missing_base_root_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SandboxesUnusable, match=r"python -m rein_sandboxes\.root"):
        async with open_bubblewrap(SandboxSettings(home=tmp_path)):
            pass


async def test_a_full_disk_is_named(provider: Bubblewrap, sandbox_settings: SandboxSettings, shell: SpecOf) -> None:
    greedy = sandbox_settings.model_copy(update={"min_free_bytes": 1 << 60})
    with pytest.raises(SandboxFailed) as failure:
        await Bubblewrap(base=provider._base, settings=greedy, groups=None).run(shell("true"))
    assert failure.value.code == "sandbox.disk_full"
