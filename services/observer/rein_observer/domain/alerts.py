"""Alert rules: what of a board a person should be told at once, and what should stop a run.

Each rule looks at the whole board and names itself by a stable code; an alert is raised once per run and code.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_observer.domain.board import RunBoard, owner_name

_POLICY = owner_name(pb.OWNER_POLICY)


@dataclass(frozen=True, slots=True)
class Limits:
    """When to speak."""

    absent_share: float
    """Rollouts that ended without a reward, of all ended."""
    fork_rate: float
    """Turns that opened a segment although their session had one."""
    num_rollouts: int
    """Shares are judged from this many rollouts on."""


def due(board: RunBoard, *, limits: Limits) -> list[ev.AlertRaised]:
    """Alerts that hold now and were not raised before."""
    found = (alert for rule in _RULES for alert in rule(board, limits))
    return [alert for alert in found if alert.code not in board.alerts]


def _alert(board: RunBoard, code: str, detail: str, severity: "ev.Severity.ValueType") -> ev.AlertRaised:
    return ev.AlertRaised(run=board.run, code=code, detail=detail, severity=severity)


def _absent(board: RunBoard, limits: Limits) -> Iterator[ev.AlertRaised]:
    num_ended = board.outcomes["rewarded"] + board.outcomes["absent"]
    if num_ended >= limits.num_rollouts and board.outcomes["absent"] > limits.absent_share * num_ended:
        worst = max(((n, key) for key, n in board.failures.items() if key[0] != _POLICY), default=None)
        cause = f"; most often {worst[1][0]}: {worst[1][1]} ({worst[0]})" if worst else ""
        detail = f"{board.outcomes['absent']} of {num_ended} rollouts ended without a reward{cause}."
        yield _alert(board, "rollouts.absent", detail, ev.SEVERITY_WARNING)


def _forks(board: RunBoard, limits: Limits) -> Iterator[ev.AlertRaised]:
    rate = board.fork_rate()
    if rate is not None and board.num_turns >= limits.num_rollouts and rate > limits.fork_rate:
        detail = f"{board.num_forks} of {board.num_turns} turns could not continue their session's tokens."
        yield _alert(board, "sessions.forking", detail, ev.SEVERITY_WARNING)


def _no_turns(board: RunBoard, limits: Limits) -> Iterator[ev.AlertRaised]:
    if board.outcomes["rewarded"] >= limits.num_rollouts and board.num_turns == 0:
        detail = f"{board.outcomes['rewarded']} rollouts were graded and no model call was recorded."
        yield _alert(board, "turns.none", detail, ev.SEVERITY_STOP)


def _all_zero(board: RunBoard, limits: Limits) -> Iterator[ev.AlertRaised]:
    rewards = [reward for step in board.group_rewards.values() for reward in step]
    if len(rewards) >= 4 * limits.num_rollouts and not any(rewards):
        detail = f"None of the first {len(rewards)} training rollouts earned a reward."
        yield _alert(board, "rewards.all_zero", detail, ev.SEVERITY_WARNING)


_RULES: tuple[Callable[[RunBoard, Limits], Iterator[ev.AlertRaised]], ...] = (_absent, _forks, _no_turns, _all_zero)
