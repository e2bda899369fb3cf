"""The base root: a small Debian of our own that every sandbox sees read-only as /usr and /etc.

    python -m rein_sandboxes.root [--home var/sandboxes]

Made once with debootstrap (root needed, about a minute) from the mirror the machine's own apt is set to, into
`<home>/root-<digest of this recipe>`, and left alone afterwards. Prints the folder as its last line.
Where it cannot be made, `base = "host"` in a service's `sandbox` section shows the host's /usr read-only instead; that
is a setting somebody writes, never a silent fallback.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rein_sandboxes.errors import SandboxesUnusable
from rein_sandboxes.etc import write_etc

SUITE = "bookworm"
PACKAGES = ("python3", "git", "ca-certificates", "procps")
REVISION = 1
PYTHON = "/usr/bin/python3"
PYTHON_VERSION = "3.11"
"""Of SUITE: what is installed for Python in sandboxes is built for this."""

REMEDY = 'run `python -m rein_sandboxes.root` as root, or set base = "host" in the [sandbox] section'
_UNNEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/bash-completion",
    "var/cache/apt",
    "var/lib/apt/lists",
)


def root_folder(home: Path) -> Path:
    """Where the base root of this recipe is, made or not."""
    recipe = json.dumps([REVISION, SUITE, PACKAGES, _UNNEEDED])
    return home / f"root-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def find_root(home: Path) -> Path:
    """The finished base root. Raises SandboxesUnusable."""
    folder = root_folder(home)
    if not (folder / "usr/bin/python3").exists():
        raise SandboxesUnusable("sandbox.no_base_root", f"there is no base root at {folder}; {REMEDY}")
    return folder


def build_root(home: Path) -> Path:
    """Make the base root unless it is there. Raises SandboxesUnusable."""
    target = root_folder(home)
    if target.is_dir():
        return target
    _require_tools()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".root-", dir=home) as scratch:
        made = Path(scratch, "root")
        _bootstrap(made, mirror=apt_mirror(), log=Path(scratch, "log"))
        _trim(made)
        write_etc(made / "etc")
        made.rename(target)
    return target


def apt_mirror() -> str:
    """The mirror apt itself uses for SUITE on this machine. Raises SandboxesUnusable."""
    form = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"
    done = subprocess.run(["apt-get", "indextargets", "--format", form], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        uri, *about = line.split()
        if about == [SUITE, "main", "Debian"]:
            return uri
    raise SandboxesUnusable(
        "sandbox.no_mirror", f'apt on this machine has no source for Debian {SUITE} main; add one, or set base = "host"'
    )


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise SandboxesUnusable("sandbox.not_root", f"making the base root needs root; {REMEDY}")
    for tool in ("debootstrap", "apt-get"):
        if shutil.which(tool) is None:
            raise SandboxesUnusable(
                "sandbox.no_debootstrap", f"{tool} is missing; `apt-get install debootstrap`, or {REMEDY}"
            )


def _bootstrap(target: Path, *, mirror: str, log: Path) -> None:
    include = f"--include={','.join(PACKAGES)}"
    argv = ["debootstrap", "--variant=minbase", include, SUITE, str(target), mirror]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    tail: list[str] = []
    with process:
        for number, line in enumerate(process.stdout or ()):
            tail = [*tail[-20:], line]
            if number % 40 == 0:
                _say(f"{number:4} {line.strip()}")
    if process.returncode:
        raise SandboxesUnusable(
            "sandbox.debootstrap_failed", f"debootstrap ended with {process.returncode}: {''.join(tail)[-800:]}"
        )


def _trim(root: Path) -> None:
    """Leave out what no task needs, and every set-user-id bit."""
    for name in _UNNEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
    for archive in (root / "var/cache").rglob("*.deb"):
        archive.unlink()
    for path in (root / "usr").rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000:
            path.chmod(path.stat().st_mode & 0o1777)


def _say(text: str) -> None:
    print(f"base root: {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m rein_sandboxes.root", description="Make the sandboxes' base root.")
    parser.add_argument("--home", type=Path, default=Path("var/sandboxes"), help="folder it lies in")
    home = parser.parse_args(argv).home.resolve()
    try:
        folder = build_root(home)
    except SandboxesUnusable as error:
        _say(error.detail)
        return 2
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
