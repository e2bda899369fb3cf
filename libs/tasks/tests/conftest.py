"""A tiny package of our own, as a source archive, and a test site borrowed from the running environment."""

import hashlib
import importlib.util
import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rein_tasks.cache import unpack
from rein_tasks.grading_site import add_runner
from rein_tasks.model import Chance, Fault, Package, Split, Task
from rein_tasks.operators import Kind

CORE = '''"""Small sums."""


def is_small(number, limit):
    return number < limit


def total(first, second):
    return first + second


def same(number):
    return number * 1
'''
TESTS = """import pytest
from tiny.core import is_small, same, total


@pytest.mark.parametrize("limit", [3, 4])
def test_is_small(limit):
    assert is_small(2, limit)
    assert not is_small(limit, limit)
    assert not is_small(9, limit)


def test_total():
    assert total(2, 3) == 5


def test_same():
    assert same(4) == 4


@pytest.mark.skip
def test_skipped():
    pass


@pytest.mark.xfail
def test_expected_to_fail():
    assert False
"""
FILES = {
    "src/tiny/__init__.py": "",
    "src/tiny/core.py": CORE,
    "src/tiny/tests/test_inner.py": "",
    "src/tiny/conftest.py": "",
    "LICENSE": "free",
    "tests/test_core.py": TESTS,
    "setup.py": "raise SystemExit('never run')",
}
BORROWED = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache with a test site."""
    site = tmp_path / "cache" / "site"
    site.mkdir(parents=True)
    for name in BORROWED:
        spec = importlib.util.find_spec(name)
        assert spec
        assert spec.origin
        origin = Path(spec.origin)
        place = origin.parent if origin.name == "__init__.py" else origin
        (site / place.name).symlink_to(place)
    add_runner(site)
    return tmp_path / "cache"


@pytest.fixture
def package(cache: Path) -> Package:
    """tiny 1.0, its archive in the cache."""
    archive = cache / "archives" / "tiny-1.0.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return Package(
        name="tiny",
        version="1.0",
        licence="MIT",
        archive=archive.name,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        split=Split.TRAIN,
        source={"src/tiny": "tiny", "LICENSE": "LICENSE"},
        tests={"tests": "tests"},
    )


@pytest.fixture
def unpacked(package: Package, cache: Path) -> Package:
    unpack(package, cache=cache)
    return package


@pytest.fixture
def make_task(unpacked: Package) -> Callable[..., Task]:
    """`return number < limit` made `>=`; any field may be given otherwise."""

    def make(**fields: object) -> Task:
        fault = Fault(
            line=5,
            kind=Kind.COMPARISON,
            right="<",
            wrong=">=",
            old="    return number < limit",
            new="    return number >= limit",
        )
        usual: dict[str, object] = {
            "name": "tiny-core-0005",
            "package": unpacked,
            "path": "tiny/core.py",
            "fault": fault,
            "listed_tests": ("tests/test_core.py::test_is_small[3]", "tests/test_core.py::test_total"),
            "limit_s": 20.0,
            "chance": Chance(num_passing=1, num_tried=5),
        }
        return Task.model_validate(usual | fields)

    return make


@pytest.fixture
def python() -> Path:
    return Path(sys.executable).resolve()
