"""Each harness, unmodified, repairs a file through the pipe of a real sandbox, against a scripted model."""

from pathlib import Path

import pytest

from rein_harnesses import RUNTIME, HarnessNotInstalled, load_harness
from rein_harnesses.install import installed_runtime
from rein_harnesses.standin import is_model_call, stand_in
from rein_sandboxes.bubblewrap import open_bubblewrap
from rein_sandboxes.ports import (
    PIPE_URL,
    WORKSPACE,
    Ending,
    Mount,
    PipeTarget,
    SandboxLimits,
    SandboxResult,
    SandboxSpec,
)
from rein_sandboxes.root import root_folder
from rein_sandboxes.settings import SandboxSettings

pytestmark = pytest.mark.sandbox

VAR = Path(__file__).parents[3] / "var"
INSTRUCTION = "Line 2 of toolz/itertoolz.py has one wrong operator. Repair it."
SCRIPT = ("sed -n 2p toolz/itertoolz.py", "sed -i '2s| <= | < |' toolz/itertoolz.py")
MINI_DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def sandbox_settings() -> SandboxSettings:
    has_root = root_folder(VAR / "sandboxes").is_dir()
    return SandboxSettings(home=VAR / "sandboxes", base="root" if has_root else "host")


async def run_harness(name: str, *, tmp_path: Path, url: str) -> SandboxResult:
    harness = load_harness(name)
    try:
        runtime = installed_runtime(harness, home=VAR / "harnesses")
    except HarnessNotInstalled as error:
        pytest.skip(str(error))
    tree = tmp_path / "tree"
    (tree / "toolz").mkdir(parents=True)
    (tree / "toolz/itertoolz.py").write_text("def less(a, b):\n    if a <= b:\n        return True\n")
    command = harness.command(instruction=INSTRUCTION, base_url=PIPE_URL, max_context_tokens=4096)
    spec = SandboxSpec(
        name=f"harness-{tmp_path.name}",
        argv=command.argv,
        scratch=tmp_path,
        limits=SandboxLimits(wall_s=90, memory_bytes=1 << 30, processes=256),
        env=command.env,
        mounts=(Mount(tree, WORKSPACE, is_writable=True), *([Mount(runtime, RUNTIME)] if runtime else [])),
        files=command.files,
        pipe=PipeTarget(url=url, grant="the-grant"),
    )
    async with open_bubblewrap(sandbox_settings()) as provider:
        return await provider.run(spec)


@pytest.mark.parametrize("name", ["claude-code", "mini-swe-agent"])
async def test_a_harness_repairs_a_file_through_the_pipe(name: str, tmp_path: Path) -> None:
    script = SCRIPT if name == "claude-code" else (*SCRIPT, MINI_DONE)
    async with stand_in(script) as model:
        result = await run_harness(name, tmp_path=tmp_path, url=model.url)
        calls = [each for each in model.seen if is_model_call(each)]
    assert result.ending is Ending.EXITED, result.output.decode()
    assert result.exit_status == 0, result.output.decode()
    assert (tmp_path / "tree/toolz/itertoolz.py").read_text().splitlines()[1] == "    if a < b:"
    assert len(calls) == 3
    assert INSTRUCTION in str(calls[0].body)
    assert "if a <= b:" in str(calls[1].body)
    assert all(each.headers["x-rein-grant"] == "the-grant" for each in model.seen)
    assert result.pipe.num_requests == len(model.seen)
    print(f"{name}: {result.cpu_s:.2f} CPU s, {result.wall_s:.2f} s, {(result.peak_memory_bytes or 0) >> 20} MiB")


async def test_the_null_harness_makes_one_call(tmp_path: Path) -> None:
    async with stand_in() as model:
        result = await run_harness("null", tmp_path=tmp_path, url=model.url)
    assert result.exit_status == 0, result.output.decode()
    assert b"Done." in result.output
    assert model.num_turns == 1


@pytest.mark.parametrize("name", ["claude-code", "mini-swe-agent", "null"])
async def test_a_harness_ends_when_the_model_only_fails(name: str, tmp_path: Path) -> None:
    async with stand_in() as model:
        model.status = 500
        result = await run_harness(name, tmp_path=tmp_path, url=model.url)
    assert result.ending is Ending.EXITED, result.output.decode()
    assert result.exit_status != 0
