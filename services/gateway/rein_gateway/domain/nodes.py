"""Which node a call goes to: ready ones only, the attempt's own while it is not much busier than the others."""

import zlib
from dataclasses import dataclass

from rein.v1 import events_pb2 as ev

#: A node is gone after this many missed reports.
MISSED_REPORTS = 3


@dataclass(slots=True)
class _Seen:
    report: ev.NodeReported
    at_s: float
    num_calls: int = 0


class Nodes:
    """The nodes' newest reports; times are monotonic seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def report(self, report: ev.NodeReported, *, now_s: float) -> None:
        known = self._seen.get(report.node)
        self._seen[report.node] = _Seen(report, now_s, known.num_calls if known else 0)

    def ready(self, *, run: str, now_s: float) -> list[str]:
        """Names of the nodes that may serve this run."""
        return sorted(name for name, seen in self._seen.items() if self._is_ready(seen, run, now_s))

    def choose(self, *, run: str, attempt: str, spill: int, now_s: float) -> str | None:
        """Sticky by attempt, so that its prefix is cached; the least busy node once it has `spill` calls more."""
        names = self.ready(run=run, now_s=now_s)
        if not names:
            return None
        own = names[zlib.crc32(attempt.encode()) % len(names)]
        idlest = min(names, key=lambda name: self._seen[name].num_calls)
        return idlest if self._seen[own].num_calls - self._seen[idlest].num_calls >= spill else own

    def url(self, name: str) -> str:
        return self._seen[name].report.engine_url

    def version(self, name: str) -> int:
        return self._seen[name].report.version

    def max_context(self, name: str) -> int:
        return self._seen[name].report.max_context_tokens

    def begin(self, name: str) -> None:
        self._seen[name].num_calls += 1

    def end(self, name: str) -> None:
        self._seen[name].num_calls -= 1

    @staticmethod
    def _is_ready(seen: _Seen, run: str, now_s: float) -> bool:
        report = seen.report
        is_fresh = now_s - seen.at_s <= MISSED_REPORTS * (report.interval_s or 5.0)
        return is_fresh and report.state == ev.NODE_STATE_READY and report.version > 0 and report.run == run
