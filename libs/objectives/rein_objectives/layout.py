"""Token sequences laid out densely, without padding, what they share only once.

Rows of one group begin with the same long prompt. A causal model computes the same hidden state for a token whatever
follows it, so a shared beginning is computed once and every row that begins so attends to it: exact, forwards and
backwards, and it saves most of the work where prompts are long. The rows form a tree of pieces; a piece attends to the
pieces above it in full and to itself causally, and to nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

#: A shared beginning shorter than this is computed once per row: a piece of its own would cost more than it saves.
MIN_SHARED = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Packed places [start, end) that belong to the same rows."""

    start: int
    end: int
    above: tuple[tuple[int, int], ...]
    """Places [start, end) of what comes before it in its rows, in order."""


@dataclass(frozen=True)
class Layout:
    """Where every token of every row stands; `places[r][t]` is the packed place of row r's token t."""

    pieces: tuple[Piece, ...]
    places: tuple[Tokens, ...]
    depth: Tokens
    """Position of each packed token in its rows; parallel to the packed tokens."""

    @property
    def num_places(self) -> int:
        return len(self.depth)

    @cached_property
    def masks(self) -> tuple[torch.Tensor | None, ...]:
        """Per piece, what its tokens may attend to, [piece, above + piece]; None = causal, nothing above."""
        return tuple(_mask(piece) for piece in self.pieces)


def laid_out(rows: Sequence[Tokens]) -> Layout:
    """Lay these rows out."""
    builder = _Builder(rows)
    builder.grow(list(range(len(rows))), depth=0, above=())
    depth = np.concatenate(builder.depths) if builder.depths else np.zeros(0, dtype=np.int64)
    places = tuple(
        np.concatenate([np.arange(start, end) for start, end in spans]) if spans else np.zeros(0, dtype=np.int64)
        for spans in builder.spans
    )
    return Layout(tuple(builder.pieces), places, depth)


def shared_length(one: Tokens, other: Tokens) -> int:
    """Tokens at the beginning that both have."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


class _Builder:
    def __init__(self, rows: Sequence[Tokens]) -> None:
        self._rows = rows
        self.pieces: list[Piece] = []
        self.depths: list[Tokens] = []
        self.spans: list[list[tuple[int, int]]] = [[] for _ in rows]
        self._num_places = 0

    def grow(self, members: list[int], *, depth: int, above: tuple[tuple[int, int], ...]) -> None:
        """Lay out what `members`, equal up to `depth`, have from there on."""
        shared = self._shared(members)
        if len(members) == 1 or shared - depth >= MIN_SHARED:
            above = self._add(members, depth=depth, end=shared, above=above)
            depth = shared
        branches: dict[int, list[int]] = {}
        for member in members:
            if len(self._rows[member]) > shared:
                branches.setdefault(int(self._rows[member][shared]), []).append(member)
            elif len(self._rows[member]) > depth:  # a row that ends here, its end not laid out yet
                self._add([member], depth=depth, end=shared, above=above)
        for branch in branches.values():
            self.grow(branch, depth=depth, above=above)

    def _shared(self, members: list[int]) -> int:
        first = self._rows[members[0]]
        return min(shared_length(first, self._rows[member]) for member in members)

    def _add(
        self, members: list[int], *, depth: int, end: int, above: tuple[tuple[int, int], ...]
    ) -> tuple[tuple[int, int], ...]:
        if end == depth:
            return above
        span = (self._num_places, self._num_places + end - depth)
        self._num_places = span[1]
        self.pieces.append(Piece(*span, above))
        self.depths.append(np.arange(depth, end))
        for member in members:
            self.spans[member].append(span)
        return (*above, span)


def _mask(piece: Piece) -> torch.Tensor | None:
    if not piece.above:
        return None
    length = piece.end - piece.start
    num_above = sum(end - start for start, end in piece.above)
    return torch.ones(length, num_above + length, dtype=torch.bool).tril(num_above)
