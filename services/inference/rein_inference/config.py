"""The inference node's configuration."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rein_service import ServiceConfig


class EngineSettings(BaseModel):
    """How vLLM is started."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address the engine listens on. Whoever reaches it can change its weights: keep it private."""

    port: int = Field(default=9710, gt=0)
    """Port the engine listens on."""

    threads: int = Field(default=1, ge=1)
    """Threads of the CPU build."""

    kv_cache_bytes: int = Field(default=128 * 1024 * 1024, gt=0)
    """Key/value cache, bytes."""

    max_context_tokens: int = Field(default=8192, ge=64)
    """Longest prompt plus answer, tokens."""

    max_num_seqs: int = Field(default=32, ge=1)
    """Requests that generate at the same time."""

    block_tokens: int = Field(default=32, ge=16)
    """Granularity of the prefix cache, tokens: a shared prefix is reused in whole blocks. The CPU build's default,
    128, recomputes most of a short agent turn."""

    start_s: float = Field(default=600.0, gt=0)
    """How long a start may take, seconds; imports alone take half a minute of CPU."""

    call_s: float = Field(default=120.0, gt=0)
    """Longest single control call (pause, update, probe), seconds."""

    max_starts: int = Field(default=5, ge=1)
    """Starts in a row that may fail before the process gives up with exit status 1."""

    backoff_s: float = Field(default=1.0, gt=0)
    """Wait before the first restart, seconds; doubles up to `max_backoff_s`."""

    max_backoff_s: float = Field(default=60.0, gt=0)
    """Longest wait before a restart, seconds."""

    @property
    def url(self) -> str:
        """Where the agent reaches the engine."""
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"


class InferenceConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    model: Path
    """Folder of the policy as transformers saves it: config.json, tokenizer, safetensors."""

    node: str = Field(default="node-0", pattern=r"[a-zA-Z0-9_.-]{1,60}")
    """Name of this node, unique among all nodes."""

    served_name: str = "policy"
    """Model name that clients of the engine send."""

    run: str = ""
    """Run to follow; empty = whichever run publishes weights."""

    weightserver: str = "127.0.0.1:9720"
    """host:port of the weight server."""

    engine_url: str = ""
    """How gateways reach the engine; empty = http://<engine.host>:<engine.port>."""

    engine: EngineSettings = EngineSettings()
    """The engine's own settings."""

    memory: Path = Path("/dev/shm")
    """Folder in memory where a version lies between its arrival and its switch; needs room for two of them."""

    report_s: float = Field(default=5.0, gt=0)
    """Time between two reports of this node, seconds; changes are reported at once."""

    reconnect_s: float = Field(default=1.0, gt=0)
    """Wait before subscribing again after the weight server went away, seconds; doubles up to `max_reconnect_s`."""

    max_reconnect_s: float = Field(default=5.0, gt=0)
    """Longest such wait, seconds."""

    finish_s: float = Field(default=10.0, ge=0)
    """How long requests in the engine may take to finish after a stop was asked for, seconds."""

    @property
    def advertised_url(self) -> str:
        """Where gateways reach the engine."""
        return self.engine_url or self.engine.url
