"""For tests of the whole system: one stack of a real broker, nine processes, a real engine and real sandboxes.

A pytest plugin; it expects the checkout's demo policy and tasks, and what `make setup` brought.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomlkit

REIN = Path(sys.executable).with_name("rein")
#: Away from a stack or demo that may run beside the tests.
PORT_OFFSET = 3000
UP_WITHIN_S = 400
RUN_WITHIN_S = 600
_numbers = itertools.count(1)


@dataclass
class Stack:
    """A stack that is up, used as a person would use it: by the `rein` command."""

    home: Path
    checkout: Path

    @property
    def demo(self) -> Path:
        """The demo's policy, tasks and run."""
        return self.checkout / "deploy" / "demo"

    def rein(self, *words: str, within_s: float = 60) -> subprocess.CompletedProcess[str]:
        command = [str(REIN), *words, "--home", str(self.home)]
        return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)

    def up(self) -> None:
        """Start whatever does not run."""
        done = self.rein("up", within_s=UP_WITHIN_S)
        assert done.returncode == 0, done.stderr + done.stdout

    def json(self, *words: str) -> Any:
        done = self.rein(*words, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def tap(self, topic: str, *, run: str) -> list[Any]:
        """Every event of the run in one topic."""
        done = self.rein("tap", topic, "--from-beginning", "--run", run)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["event"] for line in done.stdout.splitlines()]

    def run_file(self, **changes: Any) -> tuple[str, Path]:
        """A small run's name and file."""
        name = f"test-{next(_numbers)}"
        run: dict[str, Any] = tomlkit.parse((self.demo / "run.toml").read_text()).unwrap()
        small = {
            "name": name,
            "task_set": str(self.demo / "tasks"),
            "model": str(self.demo / "policy"),
            "harnesses": {"claude-code": 1.0, "mini-swe-agent": 1.0},
            "steps": 2,
            "group_size": 2,
            "min_group_size": 1,
            "groups_per_step": 2,
            "group_deadline_s": 300.0,
            "eval": {"at_steps": [], "num_tasks": 0, "samples_per_task": 1},
        }
        file = self.home / f"{name}.toml"
        file.write_text(tomlkit.dumps({**run, **small, **changes}))
        return name, file


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Brought up once for all tests of the whole system; taken down, and seen to be down, at their end."""
    checkout = request.config.rootpath
    prepare = ["-m", "rein_tasks.build", "--manifest", "deploy/demo/tasks", "--cache", "var/tasks"]
    subprocess.run([sys.executable, *prepare], cwd=checkout, check=True)
    stack = Stack(tmp_path_factory.mktemp("stack") / "home", checkout)
    settings = ["runner.capacity=6", "dispatcher.lease_s=12", "inference.engine.max_context_tokens=2048"]
    options = [word for setting in settings for word in ("--set", setting)]
    model = ["--model", str(stack.demo / "policy"), "--installed", str(checkout / "var")]
    done = stack.rein("up", *model, "--port-offset", str(PORT_OFFSET), *options, within_s=UP_WITHIN_S)
    assert done.returncode == 0, done.stderr + done.stdout
    yield stack
    down = stack.rein("down", within_s=120)
    assert down.returncode == 0, down.stderr + down.stdout
