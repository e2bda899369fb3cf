"""Where a deployment is, for the commands that talk to one: `<home>/config/cli.toml`, which `rein up` writes.

The environment wins (`REIN_CLI__KAFKA__SERVERS=...`). Without a file the local stack's usual addresses hold.
"""

from pathlib import Path

from pydantic import Field

from rein_blobs import BlobSettings
from rein_bus.settings import KafkaSettings
from rein_service.config import Settings, load_config


class CliConfig(Settings):
    """Addresses of one deployment."""

    kafka: KafkaSettings = KafkaSettings()
    """The bus."""

    blobs: BlobSettings = BlobSettings()
    """The blob store."""

    dispatcher: str = "127.0.0.1:9721"
    """gRPC address of the dispatcher."""

    services: dict[str, str] = Field(default_factory=dict)
    """Admin address of every service process, by its name."""

    page: str = ""
    """Address of the observer's page; empty = there is none."""


def load(home: Path, *, file: Path | None = None) -> CliConfig:
    """The deployment in `home`, or the one `file` describes. Raises ConfigRejected."""
    written = home / "config" / "cli.toml"
    return load_config(CliConfig, service="cli", file=file or (written if written.exists() else None))
