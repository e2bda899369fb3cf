"""How well recorded and recomputed log-probabilities agree.

They are the same number, computed twice, when the same weights, tokens and temperature were used: any drop of the
correlation means that what is trained on is not what was sampled. Probabilities, not their logarithms, are correlated:
rare tokens would drown everything else. Only tokens of the version they are recomputed under may be compared.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Agreement:
    """Over some tokens."""

    num_tokens: int
    correlation: float
    """Pearson, of probabilities."""
    max_gap: float
    """Largest |recorded - recomputed| log-probability, nats."""


def agreement_of(recorded_t: torch.Tensor, recomputed_t: torch.Tensor) -> Agreement:
    """At least one token. Probabilities that do not vary correlate fully when they are equal, else not at all."""
    gap = (recorded_t - recomputed_t).abs().max().item()
    pair = torch.stack([recorded_t, recomputed_t]).double().exp()
    centred = pair - pair.mean(dim=1, keepdim=True)
    scale = centred.norm(dim=1).prod().item()
    if scale < 1e-12:
        correlation = 1.0 if torch.allclose(pair[0], pair[1], atol=1e-4) else 0.0
    else:
        correlation = (centred[0] * centred[1]).sum().item() / scale
    return Agreement(num_tokens=len(recorded_t), correlation=correlation, max_gap=gap)
