"""What an engine reported of one generation, and whether it may be trained on."""

import math
from dataclasses import dataclass

from rein.v1 import events_pb2 as ev

#: Rounding may lift the log-probability of a certain token this far above 0; impossible ones are reported as -9999.
_MAX_LOGPROB, _MIN_LOGPROB = 1e-3, -1000.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a turn is withheld from training; `code` is the finding's."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Generation:
    """As reported; empty where the engine left something out. Nothing is filled in."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    logprob_ids: tuple[int, ...]
    """The token each log-probability is of."""
    versions: tuple[tuple[int, int, int], ...]
    """(version, start, end) spans over token_ids; version 0 = the engine named none."""
    finish_reason: str
    num_prompt_tokens: int | None
    num_sampled_tokens: int | None

    def spans(self) -> list[ev.VersionSpan]:
        return [ev.VersionSpan(version=version, start=start, end=end) for version, start, end in self.versions]

    def fault(self, *, num_prompt_tokens: int) -> Fault | None:
        """None = it may be trained on. `num_prompt_tokens` is what was sent."""
        num = len(self.token_ids)
        if num == 0:
            return Fault("tokens.missing", "the engine reported no sampled ids")
        if self.num_prompt_tokens != num_prompt_tokens:
            detail = f"{num_prompt_tokens} prompt ids were sent, the engine counted {self.num_prompt_tokens}"
            return Fault("tokens.prompt_mismatch", detail)
        if self.num_sampled_tokens != num:
            detail = f"the engine counted {self.num_sampled_tokens} sampled tokens and reported {num} ids"
            return Fault("tokens.length_mismatch", detail)
        return self._logprob_fault(num) or self._version_fault(num)

    def _logprob_fault(self, num: int) -> Fault | None:
        if len(self.logprobs) != num:
            return Fault("tokens.length_mismatch", f"{num} sampled ids and {len(self.logprobs)} log-probabilities")
        if self.logprob_ids != self.token_ids:
            return Fault("tokens.id_mismatch", "log-probabilities are of other tokens than the sampled ids")
        if not all(math.isfinite(value) and _MIN_LOGPROB < value <= _MAX_LOGPROB for value in self.logprobs):
            return Fault("tokens.bad_logprob", "a log-probability is no finite number at most 0")
        return None

    def _version_fault(self, num: int) -> Fault | None:
        starts = [start for _, start, _ in self.versions]
        ends = [end for _, _, end in self.versions]
        is_cover = starts == [0, *ends[:-1]] and ends[-1:] == [num] and all(map(int.__lt__, starts, ends))
        if not is_cover:
            return Fault("tokens.length_mismatch", f"version spans {self.versions} do not cover {num} sampled ids")
        if any(version <= 0 for version, _, _ in self.versions):
            return Fault("tokens.version_unknown", "the engine named no policy version for some sampled ids")
        return None
