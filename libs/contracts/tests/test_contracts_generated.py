"""What is generated is current."""

import subprocess
import sys
from pathlib import Path

import pytest

from rein_contracts.document import document


@pytest.fixture
def checkout(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath


def test_the_topics_page_is_current(checkout: Path) -> None:
    assert (checkout / "docs" / "topics.md").read_text() == document(), "call `make docs`"


def test_the_code_of_the_protos_is_current(checkout: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(checkout / "deploy" / "protos.py"), str(tmp_path)], check=True)

    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.py*")}
    package = checkout / "libs" / "contracts"
    committed = {path.relative_to(package): path.read_text() for path in (package / "rein").rglob("*_pb2*.py*")}
    committed = {path: text for path, text in committed.items() if "__pycache__" not in path.parts}
    assert sorted(fresh) == sorted(committed)
    assert [str(path) for path in fresh if fresh[path] != committed[path]] == [], "call `make protos`"
