"""Where blobs live; the `blobs` section of every service's configuration."""

from pydantic import BaseModel, ConfigDict


class BlobSettings(BaseModel):
    """One store, shared by all services of a deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    url: str = "var/blobs"
    """A folder, `s3://bucket/prefix` (needs the `s3` extra), or `memory://name` for tests."""
