"""What is generated is current: generating it again changes nothing."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    """A script of deploy/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_current(tmp_path: Path) -> None:
    script("docs").generate(tmp_path)
    made = sorted(tmp_path.iterdir())
    assert [path.name for path in made] == ["configuration.md", "metrics.md", "topics.md"]
    stale = [path.name for path in made if (ROOT / "docs" / path.name).read_text() != path.read_text()]
    assert not stale, "call `make docs`"
