"""No process of the engine outlives the agent or the engine's own server."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import rein_inference.engine
from rein_inference.adapters.command import engine_command
from rein_inference.config import EngineSettings, InferenceConfig
from rein_service.testing import eventually

GUARD = Path(rein_inference.engine.__file__).parent / "guard.py"
GUARDED = (sys.executable, "-I", "-S", str(GUARD), sys.executable, "-c")

#: Stands for vLLM's server: starts a process of its own that would go on for ever.
SERVER = "import subprocess, sys; subprocess.Popen(['sleep', '600']); {then}"

#: Stands for the agent: starts the guard in a session of its own and waits.
AGENT = "import subprocess, sys; subprocess.Popen({command!r}, start_new_session=True).wait()"


def started(*command: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def family(process: psutil.Process, *, size: int) -> list[psutil.Process]:
    return members if len(members := process.children(recursive=True)) >= size else []


def are_gone(members: list[psutil.Process]) -> bool:
    return all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in members)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_agents_death_ends_everything(number: signal.Signals) -> None:
    command = [*GUARDED, SERVER.format(then="sys.stdin.read()")]
    agent = started(sys.executable, "-c", AGENT.format(command=command))
    process = psutil.Process(agent.pid)
    await eventually(lambda: family(process, size=3), within_s=60)
    members = process.children(recursive=True)
    agent.send_signal(number)
    agent.communicate()
    await eventually(lambda: are_gone(members), within_s=30)


async def test_a_stop_lets_the_server_clean_up_and_ends_what_it_leaves() -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: print('cleaned', flush=True))"
    then = f"import signal; {handler}; print('up', flush=True); sys.stdin.read()"
    guard = started(*GUARDED, SERVER.format(then=then))
    assert guard.stdout
    assert guard.stdout.readline() == b"up\n"
    members = psutil.Process(guard.pid).children(recursive=True)
    guard.terminate()
    assert guard.stdout.readline() == b"cleaned\n"
    guard.communicate()
    await eventually(lambda: are_gone(members), within_s=30)


async def test_the_servers_end_ends_what_it_started(capfd: pytest.CaptureFixture[str]) -> None:
    guard = started(*GUARDED, SERVER.format(then="sys.stdin.readline()"))
    await eventually(lambda: family(psutil.Process(guard.pid), size=2), within_s=60)
    members = psutil.Process(guard.pid).children(recursive=True)
    guard.communicate(b"end\n")
    assert guard.returncode == -signal.SIGKILL
    await eventually(lambda: are_gone(members), within_s=30)
    assert "ended with 0" in capfd.readouterr().err


def test_the_command_says_what_the_engine_must_be() -> None:
    config = InferenceConfig(model=Path("/m"), engine=EngineSettings(threads=2, port=9711))
    command = engine_command(config)
    assert "OMP_NUM_THREADS=2" in command
    assert command[command.index("--logprobs-mode") + 1] == "processed_logprobs"
    assert command[command.index("--dtype") + 1] == "float32"
    assert command[command.index("--port") + 1] == "9711"
