"""Names of the files a student writes, and making files durable."""

import os
from pathlib import Path

WEIGHTS = "model.safetensors"
OPTIMISER = "optimiser.pt"
RANDOM = "random.pt"
FINAL = "final"


def sync(path: Path) -> None:
    """A file's bytes, or a folder's names, are on the disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
