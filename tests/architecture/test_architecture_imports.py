"""Import contracts hold, and each of them breaks when its rule is broken.

The planted violations live in a copy of the packages; the checkout is never touched.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path for top in ("libs", "services") for path in (ROOT / top).glob("*/rein_*") if path.is_dir())
LINT = Path(sys.executable).with_name("lint-imports")


def lint(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT, "--no-cache", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(cwd), "PATH": "/usr/bin:/bin"},
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages side by side, with the contracts."""
    folder = tmp_path_factory.mktemp("imports")
    for package in PACKAGES:
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.bin"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_contract_holds(copy: Path) -> None:
    done = lint(cwd=copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("contract", "place", "line"),
    [
        ("direction", "rein_bus/planted.py", "import rein_service"),
        ("direction", "rein_contracts/planted.py", "import rein_bus.errors"),
        ("direction", "rein_gateway/planted.py", "import rein_runner"),
        ("direction", "rein_service/planted.py", "import rein_cli"),
        ("inside", "rein_dispatcher/domain/planted.py", "import rein_dispatcher.service"),
        ("inside", "rein_dispatcher/domain/planted.py", "import rein_dispatcher.adapters"),
        ("inside", "rein_dispatcher/adapters/planted.py", "import rein_dispatcher.main"),
        ("pure-libraries", "rein_tokens/planted.py", "import rein_bus.ports"),
        ("pure-libraries", "rein_dialects/planted.py", "import httpx"),
        ("pure-domain", "rein_dispatcher/domain/planted.py", "import aiokafka"),
        ("pure-domain", "rein_dispatcher/domain/planted.py", "import rein_bus.ports"),
        ("torch", "rein_dispatcher/planted.py", "import torch"),
        ("torch", "rein_gateway/planted.py", "import rein_objectives"),
        ("vllm", "rein_learner/planted.py", "import vllm"),
        ("kafka", "rein_runner/planted.py", "import aiokafka"),
    ],
)
def test_a_planted_violation_breaks_its_contract(copy: Path, contract: str, place: str, line: str) -> None:
    planted = copy / place
    planted.write_text(f"{line}\n")
    try:
        done = lint("--contract", contract, cwd=copy)
    finally:
        planted.unlink()
    assert done.returncode == 1, done.stdout
    assert planted.stem in done.stdout
