"""What an engine reported of one generation, and whether it may be trained on."""

import math
from dataclasses import dataclass

from rein.v1 import events_pb2 as ev


@dataclass(frozen=True, slots=True)
class Generation:
    """`logprobs` and `versions` as reported, or empty where the engine left them out."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[tuple[int, int, int], ...]
    """(version, start, end) spans over token_ids."""
    finish_reason: str

    def spans(self) -> list[ev.VersionSpan]:
        return [ev.VersionSpan(version=version, start=start, end=end) for version, start, end in self.versions]

    def fault(self) -> tuple[str, str] | None:
        """(finding code, detail) of what makes it untrainable; None = it may be trained on."""
        num = len(self.token_ids)
        if num == 0:
            return "tokens.none", "the engine reported no sampled ids"
        if len(self.logprobs) != num:
            return "tokens.length_mismatch", f"{num} sampled ids and {len(self.logprobs)} log-probabilities"
        if not all(math.isfinite(value) and -1000 < value <= 1e-4 for value in self.logprobs):
            return "tokens.bad_logprob", "a log-probability is not a finite number at most 0"
        covered = 0
        for version, start, end in self.versions:
            if start != covered or end < start or version <= 0:
                return "tokens.bad_versions", f"version spans {self.versions} do not cover {num} ids by known versions"
            covered = end
        if covered != num:
            return "tokens.length_mismatch", f"{num} sampled ids and version spans over {covered}"
        return None
