"""How sandboxes are made; the `sandbox` section of the runner's and the grader's configuration."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict


class SandboxSettings(BaseModel):
    """Sandboxes by bubblewrap."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    home: Path = Path("var/sandboxes")
    """Folder of the base root."""

    base: Literal["root", "host"] = "root"
    """What sandboxes see as /usr: "root" = the base root under `home` (made by `python -m rein_sandboxes.root`);
    "host" = this machine's own /usr, read-only, for machines where the base root cannot be made."""

    bwrap: str = "bwrap"
    """The bubblewrap command, 0.8 or newer."""

    min_free_bytes: int = 1 << 30
    """No sandbox is started when its disk has less than this left."""

    start_s: float = 20.0
    """How long setting one sandbox up may take, seconds."""
