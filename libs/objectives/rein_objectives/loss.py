"""The objective: clipped token-level importance ratio to the recorded log-probabilities.

For token t of rollout i with advantage A_i and ratio r = exp(log pi(t) - recorded log-prob):

    loss = - (1 / D) * sum over i, t of  min(r A_i, clip(r, 1 - low, 1 + high) A_i)

Clipping below and above are separate settings (PPO, arXiv 1707.06347, eq. 7; decoupled as in DAPO, arXiv 2503.14476,
eq. 10). D is one number for the whole step, the training tokens of all groups *with signal* (some advantage not 0):
every token weighs the same whatever its row's length (DAPO, section 3.3), and groups without signal do not dilute the
others (case J5). The recorded log-probabilities are the denominator of the ratio, so a token sampled under an older
version, or by an engine that disagrees a little, is weighted for it.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Clipping:
    """The ratio is clipped to 1 - low .. 1 + high."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Loss:
    """One batch's share of the step's loss."""

    loss: torch.Tensor
    """Scalar; its sum over the step's batches is the step's loss."""
    num_clipped: int
    """Tokens whose gradient clipping took away."""


def token_logprobs(logits_tv: torch.Tensor, *, targets_t: torch.Tensor, temperature: float) -> torch.Tensor:
    """Natural log-probabilities of the targets under the distribution that was sampled from (case D1)."""
    return torch.log_softmax(logits_tv.float() / temperature, dim=-1).gather(-1, targets_t.unsqueeze(-1)).squeeze(-1)


def clipped_loss(
    logprobs_t: torch.Tensor,
    *,
    recorded_t: torch.Tensor,
    advantages_t: torch.Tensor,
    clipping: Clipping,
    num_tokens: int,
) -> Loss:
    """`num_tokens` is D: training tokens of the whole step's groups with signal."""
    ratio_t = torch.exp(logprobs_t - recorded_t)
    clipped_t = ratio_t.clamp(1 - clipping.low, 1 + clipping.high)
    gains_t = torch.minimum(ratio_t * advantages_t, clipped_t * advantages_t)
    with torch.no_grad():
        is_above = (advantages_t > 0) & (ratio_t > 1 + clipping.high)
        is_below = (advantages_t < 0) & (ratio_t < 1 - clipping.low)
    return Loss(-gains_t.sum() / num_tokens, int((is_above | is_below).sum()))
