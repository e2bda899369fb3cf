"""The weight server's configuration."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rein_service import ServiceConfig


class ListenSettings(BaseModel):
    """Where learners and nodes reach it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 where nodes are on other machines."""

    port: int = 9720
    """0 = any free port, shown by GetStatus."""


class WeightServerConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    folder: Path
    """State: one folder per run with its versions. Survives restarts; needs room for `keep_versions` + 1 of them."""

    listen: ListenSettings = ListenSettings()
    """The port of rein.v1.WeightService."""

    keep_versions: int = Field(default=4, ge=2)
    """Newest versions kept per run; Rollback can go no further back."""

    stage_s: float = Field(default=120.0, gt=0)
    """How long the nodes of a run may take to hold a new version, seconds. Then the others switch without the late
    ones, which are cut off and start over."""

    tick_s: float = Field(default=0.5, gt=0)
    """Time between two looks at late nodes, seconds."""
