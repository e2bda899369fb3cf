"""The gateway's configuration."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

from rein_service import ServiceConfig


class HttpSettings(BaseModel):
    """Where harnesses' calls arrive, through the runners' pipes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 in a container."""

    port: int = 9700
    """TCP port; 0 = any free one."""

    max_body_bytes: int = 32 * 1024 * 1024
    """Largest request body; a larger one is refused with 413."""

    stream_patience_s: float = 5.0
    """A streamed call that generates for longer is given its headers and pings first, seconds. Until then errors still
    have their own status."""

    ping_s: float = 10.0
    """Time between pings on a stream that waits for its sample, seconds; harnesses give up silent streams."""


class GatewayConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    http: HttpSettings = HttpSettings()
    """The harnesses' side."""

    model: Path
    """Folder of the policy: tokenizer.json, tokenizer_config.json and chat template."""

    model_name: str = "policy"
    """What GET /v1/models calls it; requests may name any."""

    grant_secret: SecretStr
    """Verifies grants; the runners have the same."""

    node_patience_s: float = 30.0
    """How long a call waits for a ready node before it is answered with 503, seconds."""

    engine_patience_s: float = 900.0
    """A generation that takes longer is given up, seconds."""

    bus_patience_s: float = 30.0
    """How long an answer waits for its turn's acknowledgement before it is answered with 503, seconds."""

    spill_calls: int = 16
    """A call leaves its attempt's node for the least busy one when that one has this many calls fewer."""

    session_idle_s: float = 3600.0
    """A session nobody has called for this long is closed, seconds."""
