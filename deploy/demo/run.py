"""`make demo`: the whole loop on this machine, from nothing to a curve.

Uses the `rein` command as anyone would: brings a stack up, starts a run, follows it, audits it, draws its curve, writes
`var/demo/summary.json`. Environment: HARNESS (claude-code, mini-swe-agent, mixed), SHUFFLE=1 for the control with
shuffled rewards, STEPS, EVAL_TASKS, DEMO_HOME, PORT_OFFSET. Exit status 0: the run completed and its audit is clean.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import tomlkit

from rein.v1 import events_pb2 as ev
from rein_cli.config import load
from rein_cli.reading import open_bus, to_end
from rein_cli.report import summarise
from rein_cli.stack.home import Home
from rein_cli.stack.processes import recorded
from rein_cli.wanted import Filter

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
EVENTS = (ev.RunChanged, ev.GroupAssembled, ev.StepCompleted, ev.RolloutFinished)
#: As many sandboxes at once as keep the engine busy on two cores; the engine's window is the policy's.
SETTINGS = (
    "runner.capacity=12",
    "grader.capacity=2",
    "dispatcher.lease_s=20",
    "inference.engine.max_context_tokens=2048",
)
HARNESSES = {
    "claude-code": {"claude-code": 1.0},
    "mini-swe-agent": {"mini-swe-agent": 1.0},
    "mixed": {"claude-code": 1.0, "mini-swe-agent": 1.0},
}


def main() -> int:
    home = Path(os.environ.get("DEMO_HOME", ROOT / "var" / "demo")).resolve()
    name = f"demo-{int(time.time())}"
    home.mkdir(parents=True, exist_ok=True)
    run_file = write_run(home, name=name)
    command(BIN / "python", "-m", "rein_tasks.build", "--manifest", HERE / "tasks", "--cache", ROOT / "var" / "tasks")
    try:
        with memory_watch(home) as memory:
            offset = os.environ.get("PORT_OFFSET", "0")
            rein("up", "--home", home, "--model", HERE / "policy", "--port-offset", offset, *settings())
            has_completed = rein("run", run_file, "--follow", "--home", home, check=False) == 0
        is_clean = report(home, name, peak_rss_gib=memory.peak_gib)
        if sys.stdin.isatty() and sys.stdout.isatty():
            wait_for_interrupt()
    finally:
        rein("down", "--home", home, check=False)
    return 0 if has_completed and is_clean else 1


def settings() -> Iterator[str]:
    """`--set` for each of SETTINGS."""
    for setting in SETTINGS:
        yield from ("--set", setting)


def write_run(home: Path, *, name: str) -> Path:
    """The run's file, from run.toml and the environment."""
    harness = os.environ.get("HARNESS", "claude-code")
    if harness not in HARNESSES:
        raise SystemExit(f"demo: HARNESS is {harness!r}; it must be one of: {', '.join(HARNESSES)}")
    run: dict[str, Any] = tomllib.loads((HERE / "run.toml").read_text())
    steps = int(os.environ.get("STEPS", run["steps"]))
    run["eval"]["at_steps"] = [0, steps]
    run["eval"]["num_tasks"] = int(os.environ.get("EVAL_TASKS", run["eval"]["num_tasks"]))
    filled = {
        "name": name,
        "task_set": str(HERE / "tasks"),
        "model": str(HERE / "policy"),
        "shuffle_rewards": os.environ.get("SHUFFLE", "") not in ("", "0"),
        "harnesses": HARNESSES[harness],
        "steps": steps,
    }
    file = home / "run.toml"
    file.write_text(tomlkit.dumps({**filled, **{key: value for key, value in run.items() if key not in filled}}))
    return file


def report(home: Path, name: str, *, peak_rss_gib: float) -> bool:
    """Audit, summary and curve; whether the audit is clean."""
    audit = json.loads(rein_output("audit", name, "--home", home, "--json"))
    events = asyncio.run(events_of(home, name))
    summary = {
        "run": name,
        **summarise(events),
        "rollouts_requested": audit["requested"],
        "rollouts_trained": audit["trained"],
        "rollouts_evaluated": audit["evaluated"],
        "rollouts_set_aside": audit["set_aside"],
        "rollouts_absent": audit["absent"],
        "rollouts_lost": audit["lost"],
        "rollouts_doubled": audit["doubled"],
        "audit_clean": audit["is_clean"],
        "shuffled": os.environ.get("SHUFFLE", "") not in ("", "0"),
        "peak_rss_gib": round(peak_rss_gib, 2),
    }
    (home / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    page = load(home, file=None).page
    with urllib.request.urlopen(f"{page}runs/{name}/curve.png", timeout=60) as response:
        (home / "curve.png").write_bytes(response.read())
    print(json.dumps(summary, indent=2))
    print(f"curve    {home / 'curve.png'}\npage     {page}\nsummary  {home / 'summary.json'}", flush=True)
    return bool(audit["is_clean"])


async def events_of(home: Path, name: str) -> list[Any]:
    async with open_bus(load(home, file=None).kafka) as bus:
        return [record.message for record in await to_end(bus, *EVENTS, wanted=Filter(run=name))]


class Memory:
    """Largest memory of the stack seen so far."""

    def __init__(self) -> None:
        self.peak_gib = 0.0

    def look(self, home: Path) -> None:
        resident = 0
        for entry in recorded(Home(home)):
            process = entry.process()
            family = [process, *process.children(recursive=True)] if process else []
            for member in family:
                try:
                    resident += member.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
        self.peak_gib = max(self.peak_gib, resident / 2**30)


@contextmanager
def memory_watch(home: Path, *, interval_s: float = 3.0) -> Iterator[Memory]:
    """Sums the resident memory of the stack's processes and their children while the block runs."""
    memory, stop = Memory(), threading.Event()

    def watch() -> None:
        while not stop.wait(interval_s):
            memory.look(home)

    watcher = threading.Thread(target=watch, name="memory")
    watcher.start()
    try:
        yield memory
    finally:
        stop.set()
        watcher.join()


def wait_for_interrupt() -> None:
    print("the page stays up until Ctrl-C", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


def rein(*arguments: object, check: bool = True) -> int:
    return command(BIN / "rein", *arguments, check=check)


def rein_output(*arguments: object) -> str:
    done = subprocess.run([str(BIN / "rein"), *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout


def command(*arguments: object, check: bool = True) -> int:
    """Run and show. Raises SystemExit with the command's own status."""
    words: Sequence[str] = [str(argument) for argument in arguments]
    status = subprocess.run(words, check=False).returncode
    if check and status != 0:
        raise SystemExit(status)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
