"""What a policy update computes, apart from any model: advantages, dense packing, the loss, agreement of log-probs.

Pure tensors in and out: no files, no events, no model classes. `rows` packs token sequences, `attention` keeps packed
sequences apart, `loss` is the objective, `agreement` compares recorded with recomputed probabilities.
"""

from rein_objectives.advantages import group_advantages
from rein_objectives.agreement import Agreement, agreement_of
from rein_objectives.attention import packed_attention
from rein_objectives.layout import Layout, Piece
from rein_objectives.loss import Clipping, Loss, clipped_loss, token_logprobs
from rein_objectives.rows import PackedRows, TrainRow, pack_rows

__all__ = [
    "Agreement",
    "Clipping",
    "Layout",
    "Loss",
    "PackedRows",
    "Piece",
    "TrainRow",
    "agreement_of",
    "clipped_loss",
    "group_advantages",
    "pack_rows",
    "packed_attention",
    "token_logprobs",
]
