"""The test site: a folder with pytest, the packages' own dependencies and the test runner, bound read-only for grading.

It is compiled to byte code for the interpreter that will run it; a site that is already right is left alone.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from rein_tasks import pytest_runner
from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import Package
from rein_tasks.verification import RUNNER_FILE

PYTEST = "pytest==9.2.0"
MARK_FILE = "site.json"


def build_test_site(dest: Path, *, packages: Sequence[Package], python: Path) -> None:
    """Make `dest` the site for these packages, for the interpreter `python`; seconds when new, nothing when current."""
    requirements = sorted({PYTEST, *(name for package in packages for name in package.requirements)})
    digest = hashlib.sha256(Path(pytest_runner.__file__).read_bytes()).hexdigest()
    mark = json.dumps({"requirements": requirements, "python": str(python), "runner": digest})
    if (dest / MARK_FILE).is_file() and (dest / MARK_FILE).read_text() == mark:
        return
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".site-", dir=dest.parent) as scratch:
        made = Path(scratch, "site")
        _install(requirements, target=made, python=python)
        add_runner(made)
        (made / MARK_FILE).write_text(mark)
        if dest.exists():
            dest.rename(Path(scratch, "old"))
        made.rename(dest)


def add_runner(site: Path) -> None:
    """The files of our own that a site holds beside what is installed."""
    shutil.copyfile(pytest_runner.__file__, site / RUNNER_FILE)
    (site / "empty.ini").write_text("[pytest]\n")


def _install(requirements: Sequence[str], *, target: Path, python: Path) -> None:
    argv = [find_uv_bin(), "pip", "install", "--quiet", "--compile-bytecode", "--link-mode", "copy"]
    argv += ["--python", str(python), "--target", str(target), *requirements]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TaskSetBroken(
            f"the test site could not be installed: {done.stderr.strip()[-800:]}",
            file=str(target),
            field="requirements",
            remedy="check the network and the package index settings, then run it again",
        )
