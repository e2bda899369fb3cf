"""Attention over a packed layout: each row sees itself and no other, shared beginnings included.

The signature is that of a transformers attention function, so any of its models can run packed rows: register it, pass
`layout=` to the model's forward, and position ids that are the layout's depths. Positions are in the keys already.
"""

import torch
from torch.nn import functional

from rein_objectives.layout import Layout


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """query [1, heads, N, d], key and value [1, kv heads, N, d] -> [1, N, heads, d]."""
    layout, scaling = kwargs.get("layout"), kwargs.get("scaling")
    if not isinstance(layout, Layout) or attention_mask is not None or kwargs.get("sliding_window") is not None:
        raise ValueError("packed attention needs layout=, no attention mask, and layers without a sliding window")
    assert scaling is None or isinstance(scaling, float)
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    outputs = []
    for piece, mask in zip(layout.pieces, layout.masks, strict=True):
        spans = (*piece.above, (piece.start, piece.end))
        output = functional.scaled_dot_product_attention(
            query[:, :, piece.start : piece.end],
            _taken(key, spans),
            _taken(value, spans),
            attn_mask=None if mask is None else mask.to(query.device),
            is_causal=mask is None,
            scale=scaling,
        )
        outputs.append(output)
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _taken(states: torch.Tensor, spans: tuple[tuple[int, int], ...]) -> torch.Tensor:
    if len(spans) == 1:
        return states[:, :, spans[0][0] : spans[0][1]]
    return torch.cat([states[:, :, start:end] for start, end in spans], dim=2)
