"""One model call as checked arrays.

Invariant: a turn that trains (`flaw is None`) has a log-probability and a version for each sampled token, a prompt
before it, and was captured as trainable. Any other turn keeps its ids, since later turns may continue them, and has
neither log-probabilities nor versions. Whether a turn fits its parent is known only beside it (see `segments`).
"""

from dataclasses import dataclass

import numpy as np

from rein.v1 import events_pb2 as ev
from rein_tokens.arrays import Floats, Ids
from rein_tokens.spill import TurnArrays

#: Rounding may lift the log-probability of a certain token this far above 0, nats.
MAX_LOGPROB = 1e-3

_NO_IDS: Ids = np.zeros(0, dtype=np.uint32)
_NO_FLOATS: Floats = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a turn is not trained."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One model call; arrays are never written to."""

    index: int
    parent: int | None
    num_prompt_tokens: int
    """Length of the whole prompt."""
    prompt_ids: Ids
    """After the parent's prompt and sample; the whole prompt where there is no parent."""
    sampled_ids: Ids
    logprobs: Floats
    """Natural, of the distribution sampled from; parallel to `sampled_ids`, empty when there is a flaw."""
    versions: Ids
    """Parallel to `sampled_ids`, empty when there is a flaw."""
    flaw: Flaw | None
    """None = trains."""


def turn_of(event: ev.TurnCaptured, *, arrays: TurnArrays | None = None) -> Turn:
    """The turn; `arrays` are those that `event.arrays` refers to, None = they could not be read. Never raises."""
    if arrays is None:
        arrays = TurnArrays(
            prompt_ids=np.array(event.prompt_ids, dtype=np.uint32),
            sampled_ids=np.array(event.sampled_ids, dtype=np.uint32),
            logprobs=np.array(event.logprobs, dtype=np.float32),
        )
        flaw = _unreadable(event) or _flaw(event, arrays)
    else:
        flaw = _flaw(event, arrays)
    return Turn(
        index=event.turn,
        parent=event.parent_turn if event.HasField("parent_turn") else None,
        num_prompt_tokens=event.num_prompt_tokens,
        prompt_ids=arrays.prompt_ids,
        sampled_ids=arrays.sampled_ids,
        logprobs=_NO_FLOATS if flaw else arrays.logprobs,
        versions=_NO_IDS if flaw else _versions(event),
        flaw=flaw,
    )


def _unreadable(event: ev.TurnCaptured) -> Flaw | None:
    if event.arrays.sha256 == "":
        return None
    return Flaw("tokens.arrays_unreadable", f"blob {event.arrays.sha256} with the turn's ids could not be read")


def _flaw(event: ev.TurnCaptured, arrays: TurnArrays) -> Flaw | None:
    """The first thing that keeps the turn from training."""
    if not event.is_trainable:
        return Flaw("turn.untrainable", event.untrainable or "captured as untrainable without a reason")
    if event.kind == ev.TURN_KIND_SIDE:
        return Flaw("turn.side", "not a step of the task")
    return _array_flaw(event, arrays) or _version_flaw(event, num_sampled=len(arrays.sampled_ids))


def _array_flaw(event: ev.TurnCaptured, arrays: TurnArrays) -> Flaw | None:
    num_sampled = len(arrays.sampled_ids)
    if num_sampled == 0:
        return Flaw("tokens.sample_empty", "no sampled ids")
    if event.num_prompt_tokens == 0:
        return Flaw("tokens.prompt_empty", "no prompt that the first sampled token could follow")
    if len(arrays.logprobs) != num_sampled:
        return Flaw("tokens.length_mismatch", f"{num_sampled} sampled ids, {len(arrays.logprobs)} log-probabilities")
    if not np.isfinite(arrays.logprobs).all() or arrays.logprobs.max() > MAX_LOGPROB:
        return Flaw("tokens.logprob_invalid", "a log-probability is not finite or above 0")
    return None


def _version_flaw(event: ev.TurnCaptured, *, num_sampled: int) -> Flaw | None:
    covered = 0
    for span in event.versions:
        if span.version == 0:
            return Flaw("tokens.version_zero", "a token was sampled under base weights")
        if span.start != covered or span.end <= span.start:
            return Flaw("tokens.version_gap", f"version spans leave a gap or overlap at {covered}")
        covered = span.end
    if covered != num_sampled:
        return Flaw("tokens.version_gap", f"version spans cover {covered} of {num_sampled} sampled ids")
    return None


def _versions(event: ev.TurnCaptured) -> Ids:
    lengths = [span.end - span.start for span in event.versions]
    return np.repeat(np.array([span.version for span in event.versions], dtype=np.uint32), lengths)
