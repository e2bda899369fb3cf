"""Rows to train on, packed into batches of bounded size.

Rows of a group stay side by side, so that what they share is laid out once. A batch holds at most `max_tokens` packed
tokens; a longer row is cut there, and what was cut off is counted: earlier tokens do not depend on later ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rein_objectives.layout import MIN_SHARED, Layout, Tokens, laid_out, shared_length


@dataclass(frozen=True, slots=True, eq=False)
class TrainRow:
    """One token sequence of one rollout."""

    token_ids: Tokens
    sampled_at: Tokens
    """Places of the tokens that train, ascending, never 0."""
    logprobs: NDArray[np.float32]
    """As recorded, nats; parallel to `sampled_at`."""
    versions: Tokens
    """Parallel to `sampled_at`."""
    advantage: float

    def cut(self, num_tokens: int) -> "TrainRow":
        """Its beginning."""
        kept = int(np.searchsorted(self.sampled_at, num_tokens))
        return TrainRow(
            self.token_ids[:num_tokens],
            self.sampled_at[:kept],
            self.logprobs[:kept],
            self.versions[:kept],
            self.advantage,
        )


@dataclass(frozen=True, eq=False)
class PackedRows:
    """One batch. The last five are parallel to each other: one entry per token that trains."""

    layout: Layout
    token_ids_n: torch.Tensor
    position_ids_n: torch.Tensor
    predict_at_t: torch.Tensor
    """Packed place whose output predicts the token; one place may predict for several rows."""
    targets_t: torch.Tensor
    recorded_t: torch.Tensor
    versions_t: torch.Tensor
    advantages_t: torch.Tensor
    num_row_tokens: int
    """Tokens of all rows, shared ones counted for each."""


def pack_rows(rows: Sequence[TrainRow], *, max_tokens: int) -> tuple[list[PackedRows], int]:
    """Batches in order of the rows, and the number of training tokens cut off."""
    kept = [row.cut(max_tokens) for row in rows]
    num_cut = sum(len(row.sampled_at) for row in rows) - sum(len(row.sampled_at) for row in kept)
    batches = [_packed(batch) for batch in _batches([row for row in kept if len(row.sampled_at)], max_tokens)]
    return batches, num_cut


def _batches(rows: Sequence[TrainRow], max_tokens: int) -> Iterator[list[TrainRow]]:
    """Greedy: a row costs what it does not share with a row already in the batch."""
    batch: list[TrainRow] = []
    num_tokens = 0
    for row in rows:
        shared = max((shared_length(row.token_ids, other.token_ids) for other in batch), default=0)
        cost = len(row.token_ids) - (shared if shared >= MIN_SHARED else 0)
        if batch and num_tokens + cost > max_tokens:
            yield batch
            batch, num_tokens, cost = [], 0, len(row.token_ids)
        batch.append(row)
        num_tokens += cost
    if batch:
        yield batch


def _packed(rows: Sequence[TrainRow]) -> PackedRows:
    layout = laid_out([row.token_ids for row in rows])
    token_ids = np.zeros(layout.num_places, dtype=np.int64)
    for row, places in zip(rows, layout.places, strict=True):
        token_ids[places] = row.token_ids
    predict_at = [places[row.sampled_at - 1] for row, places in zip(rows, layout.places, strict=True)]
    advantages = [np.full(len(row.sampled_at), row.advantage, dtype=np.float32) for row in rows]
    return PackedRows(
        layout=layout,
        token_ids_n=torch.from_numpy(token_ids),
        position_ids_n=torch.from_numpy(layout.depth),
        predict_at_t=torch.from_numpy(np.concatenate(predict_at)),
        targets_t=torch.from_numpy(np.concatenate([row.token_ids[row.sampled_at] for row in rows])),
        recorded_t=torch.from_numpy(np.concatenate([row.logprobs for row in rows]).astype(np.float32)),
        versions_t=torch.from_numpy(np.concatenate([row.versions for row in rows])),
        advantages_t=torch.from_numpy(np.concatenate(advantages)),
        num_row_tokens=sum(len(row.token_ids) for row in rows),
    )
