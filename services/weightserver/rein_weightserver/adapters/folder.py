"""Versions in a folder: `<run>/<version>.safetensors` beside `<run>/<version>.manifest`.

The manifest is written last, so a version without one never happened. Every write is to a new name, fsynced, renamed.
Opening verifies every digest and removes what is half-written or damaged, saying so. One process per folder.
"""

import asyncio
import fcntl
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from rein.v1 import weights_pb2 as pb
from rein_service import SetupError
from rein_transfer.landing import PART, Landing, write_durably
from rein_transfer.manifest import digest_of, frames_of
from rein_weightserver.domain.keeping import Pin
from rein_weightserver.ports import Arrival, Versions

log = logging.getLogger(__name__)

DATA, MANIFEST = ".safetensors", ".manifest"
NEWEST, PIN, LOCK = "newest_run", "pin", "lock"


class FolderStore:
    """Context manager: owns the folder while open."""

    def __init__(self, folder: Path) -> None:
        """Raises SetupError when the folder cannot be had."""
        self._folder = folder
        self._runs: dict[str, dict[int, pb.WeightManifest]] = {}
        self._lock = _owned(folder)

    async def __aenter__(self) -> Self:
        self._runs = await asyncio.to_thread(_opened, self._folder)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._lock.close()

    def runs(self) -> list[str]:
        return [run for run, versions in self._runs.items() if versions]

    def versions(self, run: str) -> Versions:
        return self._runs.get(run, {})

    def pin(self, run: str) -> Pin | None:
        words = _read(self._folder / run / PIN).split()
        return Pin(version=int(words[0]), newest=int(words[1])) if len(words) == 2 else None

    def newest_run(self) -> str:
        return _read(self._folder / NEWEST)

    def arrival(self, manifest: pb.WeightManifest) -> Landing:
        folder = self._folder / manifest.run
        folder.mkdir(exist_ok=True)
        return Landing(_data(folder, manifest.version), manifest=manifest)

    def keep(self, arrival: Arrival) -> None:
        assert isinstance(arrival, Landing)
        arrival.finish(is_durable=True)
        manifest = arrival.manifest
        write_durably(arrival.path.with_suffix(MANIFEST), manifest.SerializeToString())
        self._runs.setdefault(manifest.run, {})[manifest.version] = manifest

    def frames(self, manifest: pb.WeightManifest) -> Iterator[bytes]:
        return frames_of(manifest, weights=_data(self._folder / manifest.run, manifest.version))

    def write_pin(self, run: str, pin: Pin) -> None:
        write_durably(self._folder / run / PIN, f"{pin.version} {pin.newest}".encode())

    def write_newest_run(self, run: str) -> None:
        write_durably(self._folder / NEWEST, run.encode())

    def forget(self, run: str, version: int) -> None:
        del self._runs[run][version]
        path = _data(self._folder / run, version)
        path.with_suffix(MANIFEST).unlink()
        path.unlink()


def _owned(folder: Path) -> IO[bytes]:
    lock = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if lock:
            lock.close()
        raise SetupError(
            "weights.folder_unusable",
            f"cannot use {folder} (key folder): {error.strerror}; stop the weight server that has it or name another",
        ) from error
    return lock


def _opened(folder: Path) -> dict[str, dict[int, pb.WeightManifest]]:
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    for run in runs:
        _sweep(run)
    return {run.name: dict(_verified(run)) for run in runs}


def _sweep(run: Path) -> None:
    for path in run.iterdir():
        is_orphan = path.suffix == DATA and not path.with_suffix(MANIFEST).exists()
        if path.name.endswith(PART) or is_orphan:
            path.unlink()
            log.warning("weights.leftover_removed", extra={"file": str(path)})


def _verified(run: Path) -> Iterator[tuple[int, pb.WeightManifest]]:
    for path in sorted(run.glob(f"*{MANIFEST}")):
        manifest = pb.WeightManifest.FromString(path.read_bytes())
        data = path.with_suffix(DATA)
        if data.exists() and data.stat().st_size == manifest.size_bytes and digest_of(data) == manifest.digest:
            yield manifest.version, manifest
            continue
        path.unlink()
        data.unlink(missing_ok=True)
        log.error("weights.version_damaged", extra={"run": run.name, "version": manifest.version})


def _data(folder: Path, version: int) -> Path:
    return folder / f"{version}{DATA}"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
