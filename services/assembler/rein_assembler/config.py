"""The assembler's configuration."""

from pydantic import Field

from rein_service import ServiceConfig


class AssemblerConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    unopened_limit_s: float = Field(default=900.0, gt=0)
    """A group whose events come without its GroupOpened for this long is forgotten and reported, seconds."""

    checkpoint_records: int = Field(default=1000, gt=0)
    """A partition in which no group ends is checkpointed after this many records; what was read since then is read
    again after a crash."""
