"""What a user gets for a mistake: status 2, one line with thing, place and remedy, the same as JSON."""

import json
import socket
from pathlib import Path

import pytest

from rein_cli.main import main


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


RUN = 'name = "r"\ntask_set = "t"\nmodel = "m"\nsteps = 1\n[harnesses]\nnull = 1\n'

#: Ports no stack of this machine uses, below those the system hands out to clients.
FREE = ("--port-offset", "21000")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["tap", "turn.captrued"], ["'turn.captrued'", "'turn.captured'"]),
        (["tap", "turn.captured", "--tail", "--parquet", "x"], ["--parquet", "--tail"]),
        (["status"], ["no stack in", "rein up"]),
        (["up"], ["--model DIR"]),
        (["up", "--model", "/nowhere", *FREE], ["no model folder /nowhere", "--model DIR"]),
        (["up", "--model", "/nowhere", "--nodes", "99"], ["nodes is 99", "1 to 10"]),
        (["up", "--model", "/nowhere", "--set", "gatway.port=1"], ["'gatway.port=1'", "'gateway'"]),
        (["up", "--model", "/nowhere", "--kafka-settings", "/none.toml"], ["/none.toml"]),
        (["up", "--model", "/nowhere", "--min-memory-gib", "1e6", *FREE], ["GiB of memory are free", "1000000.0"]),
        (["up", "--model", "/nowhere", "--min-disk-gib", "1e6", *FREE], ["GiB are free under", "1000000.0"]),
        (["run"], ["TOML file"]),
        (["run", "/nowhere.toml"], ["/nowhere.toml"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], parts: list[str]
) -> None:
    at = ["--home", str(tmp_path)]
    assert main([*words, *at]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(part in said for part in parts), said
    assert main([*words, *at, "--json"]) == 2
    assert set(json.loads(capsys.readouterr().out)["error"]) == {"code", "detail"}


def test_a_misspelt_key_of_a_run_is_named_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "run.toml", f"{RUN}[limits]\nwal_s = 1\n")
    assert main(["run", file, "--home", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "'limits.wal_s'" in said
    assert "run.toml" in said
    assert "'wall_s'" in said


def test_a_dispatcher_that_is_away_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(tmp_path, "cli.toml", f'dispatcher = "127.0.0.1:{free_port()}"\n')
    assert main(["run", write(tmp_path, "run.toml", RUN), "--config", config]) == 2
    assert "the dispatcher at 127.0.0.1:" in capsys.readouterr().err


def test_a_misspelt_key_of_the_addresses_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(tmp_path, "cli.toml", '[kafka]\nserver = "x"\n')
    assert main(["tap", "turn.captured", "--config", config]) == 2
    assert "did you mean 'servers'?" in capsys.readouterr().err


def test_a_broker_that_is_away_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = f"127.0.0.1:{free_port()}"
    config = write(tmp_path, "cli.toml", f'[kafka]\nservers = "{servers}"\nrequest_timeout_s = 1.0\n')
    assert main(["audit", "r", "--config", config]) == 2
    said = capsys.readouterr().err
    assert servers in said
    assert said.count("\n") == 1


def test_bringing_down_what_is_not_up_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--home", str(tmp_path)]) == 0
    assert "nothing runs" in capsys.readouterr().out
