"""What a run needs of this machine and this deployment, checked one by one. `rein doctor` shows all, `rein up` obeys.

Each check answers with what was found, and where it fails with the remedy. Nothing here changes anything.
"""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
from safetensors import SafetensorError, safe_open

GIB = 1024**3
JAVA_MIN = 17
BWRAP_S = 20.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    is_ok: bool
    found: str
    """What was found, and where."""
    remedy: str = ""
    """What to do; empty when it is fine."""

    def line(self) -> str:
        return f"{self.found}; {self.remedy}" if self.remedy else self.found


def fine(name: str, found: str) -> Check:
    return Check(name, is_ok=True, found=found)


def wrong(name: str, found: str, *, remedy: str) -> Check:
    return Check(name, is_ok=False, found=found, remedy=remedy)


def java() -> Check:
    remedy = f"install Java {JAVA_MIN} or newer, e.g. apt-get install default-jre-headless"
    if (path := shutil.which("java")) is None:
        return wrong("java", "there is no java on PATH", remedy=remedy)
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MIN:
        return wrong("java", f"{path} is {said.splitlines()[0] if said else 'broken'}", remedy=remedy)
    return fine("java", f"{path}, version {version[1]}")


def sandbox() -> Check:
    """Bubblewrap, with a user namespace and a network namespace of its own."""
    if (path := shutil.which("bwrap")) is None:
        remedy = "install it, e.g. apt-get install bubblewrap"
        return wrong("sandbox", "there is no bwrap on PATH", remedy=remedy)
    trial = [path, "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"]
    remedy = "allow them, e.g. sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000"
    try:
        done = subprocess.run(trial, capture_output=True, text=True, check=False, timeout=BWRAP_S)
    except subprocess.TimeoutExpired:
        return wrong("sandbox", f"{path} made no user namespace within {BWRAP_S:g} s", remedy=remedy)
    if done.returncode != 0:
        return wrong("sandbox", f"{path} cannot make user namespaces: {done.stderr.strip()}", remedy=remedy)
    return fine("sandbox", f"{path} makes user namespaces")


def memory(*, needed_gib: float) -> Check:
    free_gib = psutil.virtual_memory().available / GIB
    found = f"{free_gib:.1f} GiB of memory are free, {needed_gib:.1f} are needed"
    return fine("memory", found) if free_gib >= needed_gib else wrong("memory", found, remedy="end other programs")


def disk(folder: Path, *, needed_gib: float) -> Check:
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free_gib = shutil.disk_usage(there).free / GIB
    found = f"{free_gib:.1f} GiB are free under {folder}, {needed_gib:.1f} are needed"
    return fine("disk", found) if free_gib >= needed_gib else wrong("disk", found, remedy="make room, or set --home")


def ports(wanted: Iterable[tuple[str, int]]) -> list[Check]:
    """One check for all of them when they are free, else one for each taken port."""
    taken = [(name, port) for name, port in wanted if not _is_free(port)]
    if not taken:
        return [fine("ports", "all ports of the stack are free")]
    return [
        wrong("ports", f"port {port} for {name} is taken", remedy="stop its owner, or shift all with --port-offset N")
        for name, port in taken
    ]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def model(folder: Path) -> Check:
    """A Hugging Face folder: configuration, weights and tokenizer are there and readable."""
    remedy = "name a folder with config.json, *.safetensors and tokenizer.json (--model DIR)"
    if not folder.is_dir():
        return wrong("model", f"there is no model folder {folder}", remedy=remedy)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        return wrong("model", f"{folder} has no *.safetensors file", remedy=remedy)
    try:
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        num_tensors = sum(_num_tensors(file) for file in weights)
        vocabulary = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        return wrong("model", f"{folder} does not load: {type(error).__name__}: {error}", remedy=remedy)
    return fine("model", f"{folder}: {architecture}, {num_tensors} tensors, {vocabulary} tokens")


def longest_context_tokens(folder: Path) -> int | None:
    """What the model in `folder` takes at most; None = it does not say, or cannot be read."""
    try:
        found = json.loads((folder / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def _num_tensors(file: Path) -> int:
    with safe_open(file, framework="numpy") as opened:
        return len(opened.keys())
