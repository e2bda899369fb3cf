"""Checkpoints as folders: `<state>/<run>/checkpoints/step-000012/`, written aside, synced, then renamed.

A folder under its final name is whole: its `checkpoint.json` names the digest of every other file in it. A newest one
that is damaged all the same (a bad disk, a stray hand) is passed over by name, and the one before it is used.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rein_learner.adapters.files import FINAL, WEIGHTS, sync
from rein_learner.domain.record import Record, from_json, to_json
from rein_learner.errors import CheckpointDamaged, CheckpointsLost
from rein_learner.ports import Checkpoint
from rein_transfer.manifest import digest_of

INDEX = "checkpoint.json"
UNFINISHED = ".unfinished"

log = logging.getLogger(__name__)


class CheckpointFolder:
    """See `ports.Checkpoints`. One process per state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    async def newest(self, run: str) -> tuple[Checkpoint | None, list[str]]:
        return await asyncio.to_thread(self._newest, run)

    @asynccontextmanager
    async def writing(self, run: str, *, step: int) -> AsyncIterator[Path]:
        folder = self._folder(run) / f"step-{step:06d}{UNFINISHED}"
        await asyncio.to_thread(_made_empty, folder)
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def commit(self, folder: Path, *, record: Record) -> Checkpoint:
        return await asyncio.to_thread(_committed, folder, record)

    async def prune(self, run: str, *, keep: int) -> None:
        await asyncio.to_thread(self._prune, run, keep)

    async def past_weights(self, run: str) -> dict[int, Path]:
        return await asyncio.to_thread(self._past_weights, run)

    def final(self, run: str) -> Path:
        return self._state / run / FINAL

    def _folder(self, run: str) -> Path:
        return self._state / run / "checkpoints"

    def _finished(self, run: str) -> list[Path]:
        """Newest first."""
        folders = [path for path in self._folder(run).glob("step-*") if path.suffix != UNFINISHED]
        return sorted(folders, reverse=True)

    def _newest(self, run: str) -> tuple[Checkpoint | None, list[str]]:
        damaged: list[str] = []
        for folder in self._finished(run):
            try:
                return _read(folder), damaged
            except CheckpointDamaged as error:
                damaged.append(error.detail)
        if damaged:
            raise CheckpointsLost(run, self._folder(run))
        return None, []

    def _prune(self, run: str, keep: int) -> None:
        for folder in self._finished(run)[keep:]:
            shutil.rmtree(folder)

    def _past_weights(self, run: str) -> dict[int, Path]:
        found = {}
        for folder in self._finished(run):
            try:
                record, _ = _indexed(folder)
            except CheckpointDamaged:
                continue
            found[record.version] = folder / WEIGHTS
        return found


def _made_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _committed(folder: Path, record: Record) -> Checkpoint:
    digests = {path.name: digest_of(path) for path in sorted(folder.iterdir())}
    (folder / INDEX).write_text(to_json(record, digests=digests))
    for path in folder.iterdir():
        sync(path)
    sync(folder)
    final = folder.with_suffix("")
    shutil.rmtree(final, ignore_errors=True)  # a damaged one of the same step
    folder.rename(final)
    sync(final.parent)
    return Checkpoint(record=record, folder=final, weights=final / WEIGHTS)


def _indexed(folder: Path) -> tuple[Record, dict[str, str]]:
    try:
        return from_json((folder / INDEX).read_text())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointDamaged(folder, f"{INDEX}: {error}") from error


def _read(folder: Path) -> Checkpoint:
    """The whole checkpoint, every digest compared. Raises CheckpointDamaged."""
    record, digests = _indexed(folder)
    for name, wanted in digests.items():
        try:
            got = digest_of(folder / name)
        except (OSError, ValueError) as error:
            raise CheckpointDamaged(folder, f"{name}: {error}") from error
        if got != wanted:
            raise CheckpointDamaged(folder, f"{name} does not have the digest it was written with")
    return Checkpoint(record=record, folder=folder, weights=folder / WEIGHTS)
