"""What is committed names no package index and no path of the machine it was written on."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Spelt in pieces, so that this file does not name them either.
HOSTS = ("pypi" + ".org", "python" + "hosted", "npm" + "js", "maven" + ".org", "apache" + ".org/maven2", "go" + "proxy")
PATHS = ("/work" + "/main", "/work" + "/shared", "/root" + "/.")


@pytest.fixture(scope="module")
def tracked() -> dict[str, str]:
    """Text of every tracked file; binary files are passed over."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    texts = {}
    for name in filter(None, listed.split("\0")):
        data = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if b"\0" not in data[:4096]:
            texts[name] = data.decode(errors="replace")
    return texts


@pytest.mark.parametrize("words", [HOSTS, PATHS], ids=["package indexes", "paths"])
def test_no_tracked_file_names(tracked: dict[str, str], words: tuple[str, ...]) -> None:
    pattern = re.compile("|".join(map(re.escape, words)))
    assert not {name: found[0] for name, text in tracked.items() if (found := pattern.search(text))}


def test_nothing_made_is_tracked(tracked: dict[str, str]) -> None:
    assert not [name for name in tracked if name.startswith((".venv/", "var/")) or "__pycache__" in name]
