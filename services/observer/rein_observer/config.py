"""The observer's configuration."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rein_service import ServiceConfig


class PageSettings(BaseModel):
    """The live page."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 in a container."""

    port: int = 9750
    """TCP port."""

    interval_s: float = 2.0
    """Shortest time between two updates of an open page, seconds."""


class AlertSettings(BaseModel):
    """When to raise an alert; see rein_observer.domain.alerts."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    absent_share: float = 0.2
    """Share of ended rollouts without a reward."""

    fork_rate: float = 0.2
    """Share of turns that could not continue their session's tokens."""

    num_rollouts: int = 20
    """Shares are judged from this many rollouts on."""


class ObserverConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    page: PageSettings = PageSettings()
    """The live page."""

    alerts: AlertSettings = AlertSettings()
    """Alert rules."""

    window_s: float = 60.0
    """Length of a window of the live figures, seconds."""

    num_windows: int = 15
    """Windows shown and kept."""

    state: Path = Path("var/observer")
    """Folder of the stream engine's own files."""
