"""Versions of one node in a folder in memory, under names that show whose they are."""

from pathlib import Path

from rein.v1 import weights_pb2 as pb
from rein_transfer.landing import Landing


class SharedMemory:
    """Owns every file of its node in the folder, also those a killed predecessor left."""

    def __init__(self, folder: Path, *, node: str) -> None:
        self._folder = folder
        self._prefix = f"rein-{node}-"

    def arrival(self, manifest: pb.WeightManifest) -> Landing:
        return Landing(self._folder / f"{self._prefix}{manifest.version}.safetensors", manifest=manifest)

    def clear(self) -> None:
        for path in self._folder.iterdir():
            if path.name.startswith(self._prefix):
                path.unlink(missing_ok=True)
