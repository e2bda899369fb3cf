"""A start that cannot succeed ends with status 2, says why in one line, and leaves nothing running."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from rein_cli.stack.home import Home
from rein_cli.stack.plan import Ports
from rein_cli.stack.processes import recorded

REIN = Path(sys.executable).with_name("rein")
INSTALLED = Path(__file__).resolve().parents[3] / "var"
#: Below the ports the system hands out to clients.
OFFSET = 20_000


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Looks like a model from outside; no engine is started on it here."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    save_file({"weight": np.zeros(2, np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Nothing of the stack may outlive the test, and nothing does."""
    home = Home(tmp_path / "home")
    yield home
    left = [process for process in psutil.process_iter(["cmdline"]) if str(home.path) in str(process.info["cmdline"])]
    assert not left
    assert not home.processes.exists() or recorded(home) == []


def up(home: Home, model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = ["up", "--home", str(home.path), "--model", str(model), "--installed", str(INSTALLED)]
    enough = ["--min-memory-gib", "0", "--min-disk-gib", "0", "--port-offset", str(OFFSET)]
    return subprocess.run([REIN, *arguments, *enough, *words], capture_output=True, text=True, check=False)


@pytest.mark.sandbox
def test_a_cluster_that_is_away_is_named(home: Home, model: Path) -> None:
    done = up(home, model, "--kafka", f"127.0.0.1:{Ports(OFFSET).broker}")
    assert done.returncode == 2
    assert f"127.0.0.1:{Ports(OFFSET).broker}" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.sandbox
def test_a_taken_port_is_named_with_what_needs_it(home: Home, model: Path) -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", Ports(OFFSET).page))
        owner.listen()
        done = up(home, model)
    assert done.returncode == 2
    assert f"port {Ports(OFFSET).page} for the page is taken" in done.stderr
    assert "--port-offset" in done.stderr


@pytest.mark.loop
@pytest.mark.timeout(600)
def test_a_misspelt_key_of_one_service_takes_the_whole_start_back(home: Home, model: Path) -> None:
    done = up(home, model, "--set", "runner.capcity=3")
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert "runner ended with status 2" in line
    assert "unknown key 'capcity'" in line
    assert str(home.config("runner")) in line
    assert "did you mean 'capacity'?" in line
