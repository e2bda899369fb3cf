"""Write constraints.txt from what is installed now: names and versions, no addresses. For whoever upgrades the pins."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEADER = """\
# Pins of everything setup installs; written by `python deploy/freeze.py` from an environment whose tests pass.
# Names and versions only: which index serves them is the machine's own setting.
"""


def main() -> None:
    frozen = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "freeze", "--exclude-editable", "--python", sys.executable],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    # A local label such as +cpu names a build only some indexes serve; the public version is what can be asked for.
    pins = [line.split("+")[0] for line in frozen if "==" in line and not line.startswith(("pip==", "rein-"))]
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(pins) + "\n")


if __name__ == "__main__":
    main()
