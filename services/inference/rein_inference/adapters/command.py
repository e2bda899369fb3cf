"""The command line and environment that start vLLM as an engine for training.

Every flag is there because its default breaks token truth or costs a core; see docs/architecture.md.
"""

import json
import sys
from pathlib import Path

from rein_inference.config import InferenceConfig

#: Must equal engine.plugin.BACKEND, which only the engine's processes may import.
BACKEND = "rein"

_GUARD = Path(__file__).parents[1] / "engine" / "guard.py"


def engine_command(config: InferenceConfig, *, python: str = sys.executable) -> list[str]:
    """The guard, then `env` with what vLLM reads from the environment, then vLLM's server."""
    return [
        python,
        "-I",
        "-S",
        str(_GUARD),
        "env",
        "-u",
        "VLLM_CPU_KVCACHE_SPACE",
        *_environment(config),
        python,
        *_server(config),
    ]


def _environment(config: InferenceConfig) -> list[str]:
    values = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # saves a process that polls
        "VLLM_SERVER_DEV_MODE": "1",  # the weight-update routes
        "VLLM_PLUGINS": BACKEND,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # several nodes on one machine would bind to the same core
        "OMP_NUM_THREADS": str(config.engine.threads),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return [f"{name}={value}" for name, value in values.items()]


def _server(config: InferenceConfig) -> list[str]:
    engine = config.engine
    flags = {
        "model": str(config.model),
        "served-model-name": config.served_name,
        "host": engine.host,
        "port": str(engine.port),
        "dtype": "float32",  # bf16 is no faster here and its log-probs differ from the learner's by 0.2
        "logprobs-mode": "processed_logprobs",  # after temperature, as sampled
        "generation-config": "vllm",  # no sampling defaults from the model's folder
        "kv-cache-memory-bytes": str(engine.kv_cache_bytes),
        "max-model-len": str(engine.max_context_tokens),
        "max-num-seqs": str(engine.max_num_seqs),
        "block-size": str(engine.block_tokens),
        "weight-transfer-config": json.dumps({"backend": BACKEND}),
        "uvicorn-log-level": "warning",
    }
    switches = [
        "--enforce-eager",
        "--enable-scale-out",
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
    ]
    pairs = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return ["-m", "vllm.entrypoints.openai.api_server", *pairs, *switches]
