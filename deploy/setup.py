"""Bring everything a checkout needs: `make setup` calls this, through setup.sh.

Standard library only: it runs before anything is installed. Each step names the files it depends on; a step whose
files and result have not changed since it last went well is passed over, so a second call is quick. Everything made
lies in `.venv/` and `var/`. System packages are installed only where that needs no password; otherwise what is
missing is listed with the command that brings it. Exit status: 0 ready, 1 a step failed, 2 the machine lacks something.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VAR = ROOT / "var"
STATE = VAR / "setup"
STAMP = STATE / "stamp.json"
PYTHON = ROOT / ".venv" / "bin" / "python"

#: A long step says that it is alive this often, seconds.
BEAT_S = 15.0

#: Command that must be there -> Debian package that brings it.
COMMANDS = {
    "java": "default-jre-headless",
    "mvn": "maven",
    "bwrap": "bubblewrap",
    "git": "git",
    "debootstrap": "debootstrap",
    "node": "nodejs",
    "npm": "npm",
}


@dataclass(frozen=True)
class Step:
    """One thing to bring. `inputs` are globs under the checkout; `result` must exist for the step to count as done."""

    name: str
    about: str
    inputs: Sequence[str]
    result: Path
    commands: Callable[[], list[list[str]]]
    needs_root: bool = False

    def digest(self) -> str:
        total = hashlib.sha256(str(ROOT).encode())
        for pattern in self.inputs:
            for path in sorted(ROOT.glob(pattern)):
                total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
        return total.hexdigest()


def distributions() -> list[str]:
    """Folders of the workspace's packages, libraries first."""
    return [str(path.parent.relative_to(ROOT)) for top in ("libs", "services") for path in _projects(top)]


def _projects(top: str) -> list[Path]:
    return sorted((ROOT / top).glob("*/pyproject.toml"))


def _python_commands() -> list[list[str]]:
    uv = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("uv=="))
    install = [str(PYTHON), "-m", "uv", "pip", "install", "--python", str(PYTHON), "--constraint", "constraints.txt"]
    # Ours are built with the pinned hatchling, once installed, instead of one fetched anew for each.
    own = [
        argument
        for folder in distributions()
        for argument in ("--no-build-isolation-package", f"rein-{Path(folder).name}", "--editable", folder)
    ]
    return [
        *([] if PYTHON.exists() else [[sys.executable, "-m", "venv", str(ROOT / ".venv")]]),
        [str(PYTHON), "-m", "pip", "install", "--quiet", uv],
        [*install, "hatchling", "editables"],
        [
            *(*install, "--compile-bytecode", "--override", "deploy/overrides.txt"),
            *("--requirement", "deploy/dev.txt", *own),
        ],
    ]


def _kafka_commands() -> list[list[str]]:
    copy = ["mvn", "-B", "-f", "deploy/kafka/pom.xml", "dependency:copy-dependencies"]
    return [[*copy, "-DincludeScope=runtime", f"-DoutputDirectory={VAR / 'kafka' / 'libs'}"]]


BUF = "@bufbuild/buf@1.75.0"

STEPS = (
    Step(
        "python",
        "Python packages, vLLM and torch among them (about 6 GB; 1 to 5 minutes)",
        (
            "constraints.txt",
            "deploy/overrides.txt",
            "deploy/dev.txt",
            "libs/*/pyproject.toml",
            "services/*/pyproject.toml",
        ),
        PYTHON,
        _python_commands,
    ),
    Step("kafka", "Apache Kafka (54 MB)", ("deploy/kafka/pom.xml",), VAR / "kafka" / "libs", _kafka_commands),
    Step(
        "buf",
        "buf, the protobuf linter (60 MB)",
        ("deploy/setup.py",),
        VAR / "tools" / "node_modules" / ".bin" / "buf",
        lambda: [["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(VAR / "tools"), BUF]],
    ),
    Step(
        "harnesses",
        "the coding harnesses (about 300 MB)",
        ("libs/harnesses/rein_harnesses/**/*.toml", "libs/harnesses/rein_harnesses/install.py"),
        VAR / "harnesses",
        lambda: [[str(PYTHON), "-m", "rein_harnesses.install"]],
    ),
    Step(
        "tasks",
        "the packages of the demo's tasks (40 MB)",
        ("deploy/demo/tasks/task_set.toml", "libs/tasks/rein_tasks/*.py"),
        VAR / "tasks" / "site",
        lambda: [
            [str(PYTHON), "-m", "rein_tasks.build", "--manifest", "deploy/demo/tasks", "--cache", str(VAR / "tasks")]
        ],
    ),
    Step(
        "root",
        "the sandboxes' base root (about a minute)",
        ("libs/sandboxes/rein_sandboxes/root.py",),
        VAR / "sandboxes",
        lambda: [[str(PYTHON), "-m", "rein_sandboxes.root"]],
        needs_root=True,
    ),
)


def main() -> int:
    began_s = time.monotonic()
    if (missing := _missing_packages()) and not _install(missing):
        return 2
    done = json.loads(STAMP.read_text()) if STAMP.exists() else {}
    due = [step for step in STEPS if done.get(step.name) != step.digest() or not step.result.exists()]
    for number, step in enumerate(due, 1):
        print(f"setup: [{number}/{len(due)}] {step.about}", flush=True)
        if not _do(step):
            return 1
        done[step.name] = step.digest()
        STATE.mkdir(parents=True, exist_ok=True)
        STAMP.write_text(json.dumps(done, indent=1))
    print(f"setup: ready ({len(due)} of {len(STEPS)} steps were due, {time.monotonic() - began_s:.1f} s)")
    return 0


def _missing_packages() -> list[str]:
    missing = [package for command, package in COMMANDS.items() if shutil.which(command) is None]
    if not PYTHON.exists() and not _has_module("ensurepip"):
        missing.append("python3-venv")
    return missing


def _has_module(name: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def _install(packages: Sequence[str]) -> bool:
    """Install system packages where no password is needed; otherwise say what is missing and what brings it."""
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    rights = _rights()
    if shutil.which("apt-get") is None or rights is None:
        print(
            f"setup: this machine lacks {', '.join(packages)}; bring them with:\n  sudo {' '.join(install)}\n"
            "then call make setup again",
            file=sys.stderr,
        )
        return False
    print(f"setup: system packages: {', '.join(packages)}", flush=True)
    return _run([*rights, "apt-get", "update", "-q"], log="apt") and _run([*rights, *install], log="apt")


def _rights() -> list[str] | None:
    """What to put before a command that needs root; None = a password would be asked for."""
    if os.geteuid() == 0:
        return ["env", "DEBIAN_FRONTEND=noninteractive"]
    asks = (
        shutil.which("sudo") is None
        or subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode
    )
    return None if asks else ["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive"]


def _do(step: Step) -> bool:
    rights = _rights() if step.needs_root else []
    if rights is None:
        calls = "\n".join(f"  sudo {' '.join(command)}" for command in step.commands())
        print(f"setup: {step.about} needs root; call this, then make setup again:\n{calls}", file=sys.stderr)
        return False
    return all(_run([*rights, *command], log=step.name) for command in step.commands())


def _run(command: list[str], *, log: str) -> bool:
    """Run to the end with its output in a log; say now and then that it is alive; show the log's end on failure."""
    STATE.mkdir(parents=True, exist_ok=True)
    path = STATE / f"{log}.log"
    began_s, ended = time.monotonic(), threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_S):
            print(f"setup:   {time.monotonic() - began_s:.0f} s: {_last_line(path)}", flush=True)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with path.open("ab") as output:
            status = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    finally:
        ended.set()
        beating.join()
    if status != 0:
        tail = "\n".join(path.read_text(errors="replace").splitlines()[-20:])
        print(f"setup: failed with status {status}: {' '.join(command)}\n{tail}\n(whole log: {path})", file=sys.stderr)
    return status == 0


def _last_line(path: Path) -> str:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", path.read_text(errors="replace")).split("\n")
    return next((line.strip()[-100:] for line in reversed(lines) if line.strip()), "working")


if __name__ == "__main__":
    raise SystemExit(main())
