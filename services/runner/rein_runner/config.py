"""The runner's configuration."""

from pathlib import Path

from pydantic import Field, SecretStr

from rein_sandboxes.settings import SandboxSettings
from rein_service import ServiceConfig


class RunnerConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    grant_secret: SecretStr
    """Signs grants; the gateways have the same."""

    gateways: tuple[str, ...] = Field(("http://127.0.0.1:9700",), min_length=1)
    """Addresses of gateways; each attempt keeps to one."""

    gateway_patience_s: float = 20.0
    """How long a gateway that cannot be reached is waited for (one that is just restarted), seconds."""

    capacity: int = Field(4, ge=1)
    """Rollouts at once. Harnesses wait for the model most of the time, so this may well exceed the number of cores."""

    state: Path = Path("var/runner")
    """Folder of live attempts and kept repositories. Several runners may share it."""

    tasks_cache: Path = Path("var/tasks")
    """Folder of unpacked packages (`python -m rein_tasks.build`)."""

    harness_home: Path = Path("var/harnesses")
    """Folder of installed harnesses (`python -m rein_harnesses.install`)."""

    harnesses: Path | None = None
    """Folder of harness files of one's own, beside those shipped."""

    max_patch_bytes: int = Field(1 << 20, ge=1)
    """Largest patch taken from a tree; a larger one is the policy's failure."""

    sandbox: SandboxSettings = SandboxSettings()
    """How sandboxes are made."""
