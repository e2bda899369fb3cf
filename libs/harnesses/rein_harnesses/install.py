"""Bring harnesses onto this machine: python -m rein_harnesses.install [NAME...] [--home var/harnesses] [--own FOLDER]

Each goes to `<home>/<name>-<version>`, which appears by one rename and holds a mark of what it was made from; one that
is current is left alone. npm packages are installed without running their scripts, Python ones as byte code for the
interpreter of the base root. Exit status: 0 all there, 1 an installation failed, 2 an unknown or broken harness.
"""

import argparse
import compileall
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rein_harnesses.catalog import harness_names, load_harness
from rein_harnesses.errors import HarnessBroken, HarnessNotInstalled, HarnessUnknown
from rein_harnesses.model import Harness, Install

MARK_FILE = "rein-installed.json"
PYTHON_VERSION = "3.11"
"""Of the base root's interpreter."""


class InstallFailed(RuntimeError):
    """The text holds the end of what the installer said."""


def installed_runtime(harness: Harness, *, home: Path) -> Path | None:
    """Its runtime folder; None when it needs none. Raises HarnessNotInstalled."""
    folder = harness.runtime_folder(home)
    if folder is not None and not _is_current(harness, folder=folder):
        raise HarnessNotInstalled(
            f"{harness.name} {harness.version} is not installed at {folder}; "
            f"run `python -m rein_harnesses.install {harness.name} --home {home}`"
        )
    return folder


def install(harness: Harness, *, home: Path) -> bool:
    """Install it unless it is current; True = something was done. Raises InstallFailed."""
    folder = harness.runtime_folder(home)
    if folder is None or harness.install is None or _is_current(harness, folder=folder):
        return False
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=home) as scratch:
        made = Path(scratch, "runtime")
        made.mkdir(mode=0o755)
        (_npm if harness.install.kind == "npm" else _python)(harness.install, target=made)
        for name in harness.install.copies:
            shutil.copyfile(harness.folder / name, made / name)
        compileall.compile_dir(made, maxlevels=0, quiet=2)
        for name, pattern in harness.install.links.items():
            _link(made / name, pattern=pattern)
        (made / MARK_FILE).write_text(_mark(harness))
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        made.rename(folder)
    return True


def _npm(wanted: Install, *, target: Path) -> None:
    (target / "package.json").write_text("{}")
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    _call(["npm", "install", "--ignore-scripts", "--prefix", str(target), *quiet, *wanted.packages])


def _python(wanted: Install, *, target: Path) -> None:
    from uv import find_uv_bin

    if sys.version_info[:2] != tuple(map(int, PYTHON_VERSION.split("."))):
        raise InstallFailed(
            f"Python harnesses are installed with Python {PYTHON_VERSION}, this is {sys.version.split()[0]}"
        )
    options = ["--quiet", "--no-deps", "--compile-bytecode", "--link-mode", "copy", "--python", sys.executable]
    _call([find_uv_bin(), "pip", "install", *options, "--target", str(target), *wanted.packages])


def _link(place: Path, *, pattern: str) -> None:
    found = sorted(place.parent.glob(pattern))
    if len(found) != 1:
        raise InstallFailed(
            f"{pattern} matches {len(found)} installed files, not one; this platform may lack a package"
        )
    place.symlink_to(found[0].relative_to(place.parent))


def _is_current(harness: Harness, *, folder: Path) -> bool:
    mark = folder / MARK_FILE
    return mark.is_file() and mark.read_text() == _mark(harness)


def _mark(harness: Harness) -> str:
    wanted = harness.install or Install(kind="npm", packages=("",))
    copies = {name: hashlib.sha256((harness.folder / name).read_bytes()).hexdigest() for name in wanted.copies}
    return json.dumps({"install": wanted.model_dump(mode="json"), "copies": copies}, sort_keys=True)


def _call(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InstallFailed(f"{argv[0]} is not installed on this machine") from error
    if done.returncode:
        raise InstallFailed(f"`{' '.join(argv[:3])} ...` failed: {(done.stderr or done.stdout).strip()[-800:]}")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m rein_harnesses.install", description="Install coding harnesses.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that are shipped")
    parser.add_argument("--home", type=Path, default=Path("var/harnesses"), help="folder they are installed in")
    parser.add_argument("--own", type=Path, help="folder with harness files of one's own")
    arguments = parser.parse_args(argv)
    try:
        harnesses = [load_harness(name, own=arguments.own) for name in arguments.names or harness_names()]
        for harness in harnesses:
            started_s = time.monotonic()
            is_new = install(harness, home=arguments.home.resolve())
            took = f"installed in {time.monotonic() - started_s:.0f} s" if is_new else "there"
            print(f"harness {harness.name} {harness.version}: {took}", flush=True)
    except (HarnessUnknown, HarnessBroken) as error:
        print(error, file=sys.stderr)
        return 2
    except (InstallFailed, HarnessNotInstalled) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
