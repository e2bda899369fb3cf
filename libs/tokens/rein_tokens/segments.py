"""The turns of one attempt as token sequences.

A turn continues its parent when its whole prompt is, in length and order, parent's prompt + parent's sample + its own
new ids. From each turn that opens a sequence one chain runs on. Where a turn has several continuations, the one whose
descendants reach furthest in time keeps the chain; every other opens a segment of its own, in which everything shared
is prompt. So every sampled token that trains does so in exactly one segment. A turn whose prompt cannot be rebuilt has
no place in any segment and nor have its descendants; they are reported, nothing raises (case A3).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rein_tokens.arrays import Floats, Ids, Mask, joined
from rein_tokens.turns import Flaw, Turn


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One token sequence."""

    turns: tuple[int, ...]
    """Turns whose samples belong to this segment, in order; earlier ones of a fork are prompt here."""
    token_ids: Ids
    is_trainable: Mask
    """Parallel to `token_ids`."""
    sampled_at: Ids
    """Places of the trainable tokens in `token_ids`, ascending."""
    logprobs: Floats
    """Parallel to `sampled_at`."""
    versions: Ids
    """Parallel to `sampled_at`."""

    @property
    def num_trainable(self) -> int:
        return len(self.sampled_at)


@dataclass(frozen=True, slots=True)
class Segmented:
    """All segments of an attempt, ordered by the first turn of their own."""

    segments: tuple[Segment, ...]
    flaws: Mapping[int, Flaw]
    """Turns that do not train, by index."""


def segments_of(turns: Mapping[int, Turn]) -> Segmented:
    """Segments of the attempt whose turns, by index, are these."""
    misplaced = _misplaced(turns)
    placed = {index: turns[index] for index in sorted(turns) if index not in misplaced}
    heirs = _heirs(placed)
    segments = [
        _segment(placed, start=index, heirs=heirs)
        for index, turn in placed.items()
        if turn.parent is None or heirs[turn.parent] != index
    ]
    flaws = {index: flaw for index, turn in placed.items() if (flaw := turn.flaw)}
    return Segmented(tuple(segments), dict(sorted({**flaws, **misplaced}.items())))


def _misplaced(turns: Mapping[int, Turn]) -> dict[int, Flaw]:
    """Turns whose prompt cannot be rebuilt. Parents come before children, so one pass in order is enough."""
    flaws: dict[int, Flaw] = {}
    for index in sorted(turns):
        turn, before = turns[index], 0
        if turn.parent is not None:
            parent = turns.get(turn.parent)
            if parent is None or turn.parent >= index or turn.parent in flaws:
                flaws[index] = Flaw("tokens.parent_missing", f"turn {turn.parent}, which it continues, has no place")
                continue
            before = parent.num_prompt_tokens + len(parent.sampled_ids)
        if before + len(turn.prompt_ids) != turn.num_prompt_tokens:
            detail = f"prompt has {before + len(turn.prompt_ids)} ids, {turn.num_prompt_tokens} are claimed"
            flaws[index] = Flaw("tokens.prompt_length", detail)
    return flaws


def _heirs(placed: Mapping[int, Turn]) -> dict[int, int]:
    """Per turn with continuations, the one that keeps the chain."""
    last = {index: index for index in placed}
    heirs: dict[int, int] = {}
    for index in sorted(placed, reverse=True):
        parent = placed[index].parent
        if parent is None:
            continue
        if parent not in heirs or last[index] > last[heirs[parent]]:
            heirs[parent] = index
        last[parent] = max(last[parent], last[index])
    return heirs


def _segment(placed: Mapping[int, Turn], *, start: int, heirs: Mapping[int, int]) -> Segment:
    shared: list[int] = []
    above = placed[start].parent
    while above is not None:
        shared.insert(0, above)
        above = placed[above].parent
    own = [start]
    while own[-1] in heirs:
        own.append(heirs[own[-1]])
    ids: list[Ids] = []
    places: list[Ids] = []
    length = 0
    for index in [*shared, *own]:
        turn = placed[index]
        length += len(turn.prompt_ids)
        if index >= start and turn.flaw is None:
            places.append(np.arange(length, length + len(turn.sampled_ids), dtype=np.uint32))
        length += len(turn.sampled_ids)
        ids += [turn.prompt_ids, turn.sampled_ids]
    trained = [placed[index] for index in own if placed[index].flaw is None]
    sampled_at = joined(places, dtype=np.uint32)
    is_trainable = np.zeros(length, dtype=np.bool_)
    is_trainable[sampled_at] = True
    return Segment(
        turns=tuple(own),
        token_ids=joined(ids, dtype=np.uint32),
        is_trainable=is_trainable,
        sampled_at=sampled_at,
        logprobs=joined([turn.logprobs for turn in trained], dtype=np.float32),
        versions=joined([turn.versions for turn in trained], dtype=np.uint32),
    )
