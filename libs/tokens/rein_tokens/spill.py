"""The arrays of a turn that is too large for its topic, to and from bytes (`TurnCaptured.arrays`).

The lengths of log-probabilities and samples are not compared here: whatever the gateway recorded comes back as it
was, and `turns.turn_of` judges it like any other turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rein_tokens.arrays import Dtypes, Floats, Ids, from_bytes, to_bytes

_DTYPES: Dtypes = {
    "prompt_ids": np.dtype(np.uint32),
    "sampled_ids": np.dtype(np.uint32),
    "logprobs": np.dtype(np.float32),
}


@dataclass(frozen=True, slots=True, eq=False)
class TurnArrays:
    """Fields 6, 8 and 9 of a TurnCaptured."""

    prompt_ids: Ids
    sampled_ids: Ids
    logprobs: Floats


def spill(*, prompt_ids: Sequence[int], sampled_ids: Sequence[int], logprobs: Sequence[float]) -> bytes:
    """Bytes for the blob store; accepts lists, repeated fields and arrays."""
    return to_bytes(
        {
            "prompt_ids": np.array(prompt_ids, dtype=np.uint32),
            "sampled_ids": np.array(sampled_ids, dtype=np.uint32),
            "logprobs": np.array(logprobs, dtype=np.float32),
        }
    )


def unspill(data: bytes) -> TurnArrays:
    """Raises BytesDamaged."""
    arrays = from_bytes(data, dtypes=_DTYPES)
    return TurnArrays(
        prompt_ids=arrays["prompt_ids"].astype(np.uint32, copy=False),
        sampled_ids=arrays["sampled_ids"].astype(np.uint32, copy=False),
        logprobs=arrays["logprobs"].astype(np.float32, copy=False),
    )
