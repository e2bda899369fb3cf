"""Group-relative advantages.

One reward per rollout, whatever its rows (case J1); rollouts without a reward are not here and so leave the
statistics. The advantage is the reward minus the group's mean (Dr. GRPO, arXiv 2503.20783, eq. 4). Dividing by the
standard deviation (GRPO, arXiv 2402.03300) is off by default: it gives the most weight to groups in which almost all
rollouts agree, and it makes a step's size depend on how lucky the group was.
"""

from collections.abc import Mapping
from statistics import fmean, pstdev

#: Added to the standard deviation, as in GRPO.
STD_FLOOR = 1e-6


def group_advantages(rewards: Mapping[int, float], *, divide_by_std: bool = False) -> dict[int, float]:
    """Advantage by member, of one group. All exactly 0 when all rewards are equal: the group has no signal."""
    if len(set(rewards.values())) <= 1:
        return dict.fromkeys(rewards, 0.0)
    mean = fmean(rewards.values())
    scale = pstdev(rewards.values()) + STD_FLOOR if divide_by_std else 1.0
    return {member: (reward - mean) / scale for member, reward in rewards.items()}
