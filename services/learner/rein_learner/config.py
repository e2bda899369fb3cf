"""The learner's configuration. What is learnt and how is the run's specification, not this."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rein_service import ServiceConfig


class TorchSettings(BaseModel):
    """How tensors are computed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    device: str = "cpu"
    """Torch device."""

    threads: int = Field(default=0, ge=0)
    """Threads of torch; 0 = as many as cores."""

    min_agreement_tokens: int = Field(default=64, ge=2)
    """Fewest tokens over which recorded and recomputed probabilities are correlated."""

    probe_tolerance_nats: float = Field(default=2e-3, gt=0)
    """Mean absolute log-probability difference a node may show on the probe. Nodes that serve in half precision need
    more (0.05)."""


class LearnerConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    state: Path
    """Folder of checkpoints and final models, one sub-folder per run. Must survive restarts."""

    weightserver: str = "127.0.0.1:9720"
    """host:port of the weight server."""

    torch: TorchSettings = TorchSettings()
    """The computation."""
