"""How to reach a Kafka cluster; the `kafka` section of every service's configuration."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr


class KafkaSettings(BaseModel):
    """An existing cluster, plain, with TLS, with SASL, or both."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    servers: str = "127.0.0.1:9592"
    """Bootstrap servers, `host:port[,host:port...]`. Default: the local stack's broker."""

    prefix: str = "rein"
    """First word of every topic's name, so that deployments can share a cluster."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Kafka's own name for the transport."""

    ca_file: Path | None = None
    """PEM file of the authority that signed the brokers' certificates; unset = the system's authorities."""

    cert_file: Path | None = None
    """PEM certificate of this client, for mutual TLS."""

    key_file: Path | None = None
    """PEM key of `cert_file`."""

    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """Needed by the SASL protocols."""

    sasl_user: str | None = None
    """User name for SASL."""

    sasl_password: SecretStr | None = None
    """Password for SASL; better set by environment than by file."""

    request_timeout_s: float = 20.0
    """A broker that has not answered for this long is named as unreachable, seconds."""

    session_timeout_s: float = 10.0
    """A member of a group that has been silent for this long loses its partitions to the others, seconds."""
