"""vLLM plugin: makes `--weight-transfer-config '{"backend": "rein"}'` known. Safe to load any number of times."""

from contextlib import suppress

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

BACKEND = "rein"


def register() -> None:
    """Called by vLLM in each of its processes."""
    with suppress(ValueError):  # registered already
        WeightTransferEngineFactory.register_engine(BACKEND, "rein_inference.engine.weights", "FileWeights")
