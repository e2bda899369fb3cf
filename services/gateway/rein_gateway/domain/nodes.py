"""Which node a call goes to: ready ones only, the attempt's own while it is not much busier than the others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from zlib import crc32

from rein.v1 import events_pb2 as ev

#: A node is gone after this many missed reports.
MISSED_REPORTS = 3
#: Taken where a report does not say, seconds.
USUAL_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class Node:
    """What a call needs to know of its node."""

    name: str
    url: str
    version: int
    max_context_tokens: int
    """0 = not known."""


@dataclass(slots=True)
class _Seen:
    report: ev.NodeReported
    at_s: float
    num_calls: int = 0


class Nodes:
    """The nodes' newest reports and this gateway's own calls on each; times are monotonic seconds."""

    def __init__(self, *, spill_calls: int) -> None:
        """`spill_calls`: an attempt leaves its node for one that has this many calls fewer."""
        self._spill_calls = spill_calls
        self._seen: dict[str, _Seen] = {}

    def report(self, report: ev.NodeReported, *, now_s: float) -> None:
        known = self._seen.get(report.node)
        self._seen[report.node] = _Seen(report, now_s, known.num_calls if known else 0)

    def choose(self, *, run: str, attempt: str, now_s: float, without: Collection[str] = ()) -> Node | None:
        """Sticky by attempt, so that its prefix is cached there; None = no ready node is left."""
        names = [name for name, seen in self._seen.items() if name not in without and _is_ready(seen, run, now_s)]
        if not names:
            return None
        own = max(names, key=lambda name: crc32(f"{attempt} {name}".encode()))
        idlest = min(names, key=lambda name: self._seen[name].num_calls)
        is_crowded = self._seen[own].num_calls - self._seen[idlest].num_calls >= self._spill_calls
        report = self._seen[idlest if is_crowded else own].report
        return Node(report.node, report.engine_url.rstrip("/"), report.version, report.max_context_tokens)

    def begin(self, name: str) -> None:
        self._seen[name].num_calls += 1

    def end(self, name: str) -> None:
        self._seen[name].num_calls -= 1

    def states(self, *, now_s: float) -> Mapping[str, str]:
        """A line per node, for people."""
        return {name: _line(seen, now_s) for name, seen in sorted(self._seen.items())}


def _is_silent(seen: _Seen, now_s: float) -> bool:
    return now_s - seen.at_s > MISSED_REPORTS * (seen.report.interval_s or USUAL_INTERVAL_S)


def _is_ready(seen: _Seen, run: str, now_s: float) -> bool:
    report = seen.report
    is_serving = report.state == ev.NODE_STATE_READY and report.version > 0
    return is_serving and report.run == run and not _is_silent(seen, now_s)


def _line(seen: _Seen, now_s: float) -> str:
    state = ev.NodeState.Name(seen.report.state).removeprefix("NODE_STATE_").lower()
    return f"{'silent' if _is_silent(seen, now_s) else state}, version {seen.report.version}, {seen.num_calls} calls"
