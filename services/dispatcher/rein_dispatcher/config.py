"""The dispatcher's configuration."""

from pathlib import Path

from rein_service import ServiceConfig


class DispatcherConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    lease_s: float = 30.0
    """Lease granted to runners, seconds: a runner silent for this long is taken for dead. Runners renew three times in
    it, so it also bounds how long a dead runner's rollouts are waited for."""

    tick_s: float = 1.0
    """Longest wait between two looks at leases and deadlines, seconds."""

    harnesses: Path | None = None
    """Folder of harness files of one's own, beside those shipped."""
