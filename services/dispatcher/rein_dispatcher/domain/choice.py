"""Deterministic choices: which task a group gets, which harness a rollout gets.

Both are functions of the run's seed and names alone, so a restarted dispatcher chooses the same, and an evaluation
before and after training pairs the same task, member and harness.
"""

import hashlib
import random
from collections.abc import Sequence

from rein.v1 import events_pb2 as ev


def training_task(tasks: Sequence[str], *, seed: int, number: int) -> str:
    """Task of the run's `number`-th training group: each epoch visits every task once, in a new order."""
    epoch, place = divmod(number, len(tasks))
    order = sorted(tasks)
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order[place]


def evaluation_tasks(tasks: Sequence[str], *, seed: int, num_tasks: int) -> list[str]:
    """The held-out tasks used at every evaluation of the run."""
    order = sorted(tasks)
    random.Random(f"{seed}/evaluation").shuffle(order)
    return order[:num_tasks]


def harness_of(shares: Sequence[ev.HarnessShare], *, seed: int, task: str, member: int) -> str:
    """The harness drawn for a rollout, with the run's weights."""
    digest = hashlib.sha256(f"{seed}/{task}/{member}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64 * sum(share.weight for share in shares)
    for share in shares:
        point -= share.weight
        if point < 0:
            return share.harness
    return shares[-1].harness
