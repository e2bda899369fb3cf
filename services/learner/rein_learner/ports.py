"""What the learner needs from outside besides the bus, in its own words."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein.v1 import weights_pb2 as wt
from rein_learner.domain.record import Record
from rein_objectives import Agreement, TrainRow
from rein_tokens import PackedGroup


class Arrays(Protocol):
    """Where groups' arrays lie."""

    async def of_group(self, ref: pb.BlobRef) -> PackedGroup | None:
        """None = missing or damaged, for good. Waits out a store that is away for a while."""


@dataclass(frozen=True, slots=True)
class Lecture:
    """What the policy is to learn from in one step."""

    rows: Sequence[TrainRow]
    silent: Sequence[TrainRow]
    """Rows that only serve to compare log-probabilities."""
    num_trainable: int
    """The loss's denominator."""
    version: int
    """Of the policy as it is."""
    past: Mapping[int, Path]
    """Weight files of older versions, to recompute under what sampled."""


@dataclass(frozen=True, slots=True)
class Studied:
    """What came of it, before the update."""

    loss: float
    grad_norm: float
    clip_fraction: float
    agreement: Agreement | None
    """None = too few tokens whose version's weights are at hand."""
    num_cut: int
    """Training tokens beyond the longest row."""


@dataclass(frozen=True, slots=True)
class Written:
    """What identifies the weights in a checkpoint."""

    weights_digest: str
    """As in the weight server's manifest."""
    probe: wt.Probe


class Student(Protocol):
    """One policy with its optimiser, working in a thread of its own."""

    async def study(self, lecture: Lecture) -> Studied:
        """Gradients, without an update."""

    async def update(self) -> None:
        """One optimiser step on what was studied last."""

    async def write(self, folder: Path) -> Written:
        """Weights, optimiser and random state into files of `folder`."""

    async def restore(self, folder: Path) -> None:
        """The state that `write` put there."""

    async def export(self, folder: Path) -> None:
        """The policy as a model folder of its own; replaces what is there."""


class School(Protocol):
    """Makes students."""

    async def enrol(self, spec: ev.RunSpec) -> Student:
        """The run's initial policy. Raises ModelUnusable."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One in the store."""

    record: Record
    folder: Path
    weights: Path
    """The safetensors file."""


class Checkpoints(Protocol):
    """Checkpoints on disk: there whole or not at all."""

    async def newest(self, run: str) -> tuple[Checkpoint | None, list[str]]:
        """The newest usable one (None = the run has none), and what is wrong with newer ones.

        Raises CheckpointsLost when there are some and none is usable.
        """

    def writing(self, run: str, *, step: int) -> AbstractAsyncContextManager[Path]:
        """An empty folder to fill; removed at the end of the block unless it was committed."""

    async def commit(self, folder: Path, *, record: Record) -> Checkpoint:
        """Make it durable and the newest."""

    async def prune(self, run: str, *, keep: int) -> None:
        """Remove all but the newest `keep`."""

    async def past_weights(self, run: str) -> dict[int, Path]:
        """Weight files at hand, by version."""

    def final(self, run: str) -> Path:
        """Where the run's last policy is exported to."""


class Weights(Protocol):
    """The weight server."""

    async def publish(self, fields: wt.WeightManifest, *, weights: Path) -> wt.WeightManifest:
        """Returns once the server has stored them. The same bytes again are fine."""
