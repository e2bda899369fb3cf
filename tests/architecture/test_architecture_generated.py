"""What is generated is current: generating it again changes nothing."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    """A script of deploy/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "committed", "remedy"), [("protos", "libs/contracts", "make protos"), ("docs", "docs", "make docs")]
)
def test_generated_files_are_current(tmp_path: Path, name: str, committed: str, remedy: str) -> None:
    script(name).generate(tmp_path)
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert made
    stale = [
        str(path.relative_to(tmp_path))
        for path in made
        if not (there := ROOT / committed / path.relative_to(tmp_path)).exists()
        or there.read_bytes() != path.read_bytes()
    ]
    assert not stale, f"call {remedy}"
