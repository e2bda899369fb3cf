"""Import contracts hold, and each of them breaks when its rule is broken.

The planted violations live in a copy of the packages; the checkout is never touched.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path for top in ("libs", "services") for path in (ROOT / top).glob("*/rein_*") if path.is_dir())
LINT = Path(sys.executable).with_name("lint-imports")
CONTRACTS = {
    contract["id"]: contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}

#: Contract, package the violation is planted in, what it imports.
VIOLATIONS = (
    ("direction", "rein_bus", "rein_service"),
    ("direction", "rein_contracts", "rein_bus.errors"),
    ("direction", "rein_gateway", "rein_runner"),
    ("direction", "rein_service", "rein_cli"),
    ("inside", "rein_dispatcher.domain", "rein_dispatcher.service"),
    ("inside", "rein_dispatcher.domain", "rein_dispatcher.adapters"),
    ("inside", "rein_dispatcher.adapters", "rein_dispatcher.main"),
    ("pure-libraries", "rein_tokens", "rein_bus.ports"),
    ("pure-libraries", "rein_dialects", "httpx"),
    ("pure-domain", "rein_grader.domain", "aiokafka"),
    ("pure-domain", "rein_grader.domain", "rein_bus.ports"),
    ("torch", "rein_dispatcher", "torch"),
    ("torch", "rein_gateway", "rein_objectives"),
    ("vllm", "rein_learner", "vllm"),
    ("kafka", "rein_runner", "aiokafka"),
)


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT, "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """All packages side by side, with the contracts."""
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_holds(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


def test_every_planted_violation_breaks_its_contract(copy: Path) -> None:
    for number, (_, package, imported) in enumerate(VIOLATIONS):
        (copy / package.replace(".", "/") / f"planted_{number}.py").write_text(f"import {imported}\n")
    report = lint(copy).stdout
    broken = report.partition("Broken contracts")[2]
    sections = dict(zip(CONTRACTS, _sections(broken), strict=True))
    unseen = [
        violation
        for number, violation in enumerate(VIOLATIONS)
        if not re.search(rf"planted_{number}\b", sections[violation[0]])
    ]
    assert not unseen, report


def _sections(broken: str) -> list[str]:
    """The report on each contract, in order of the contracts; a contract that was kept has an empty one."""
    found = []
    for name in CONTRACTS.values():
        _, _, after = broken.partition(f"\n{name}\n")
        ends = [at for other in CONTRACTS.values() if (at := after.find(f"\n{other}\n")) >= 0]
        found.append(after[: min(ends, default=len(after))])
    return found
