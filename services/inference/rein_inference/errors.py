"""The inference node's errors.

ReinError
├── TransientError
│   ├── EngineLost        the engine ended, or did not start: restarted with backoff
│   └── EngineRefused     a call to the engine failed: its state is in doubt, so it is restarted
├── RejectedError
│   ├── ProbeDisagrees    the engine's log-probabilities are not the learner's
│   └── ProbeMissing      a version that cannot be checked
└── FatalError
    ├── EngineHopeless    too many starts in a row failed
    └── (rein_service) SetupError   the model's folder or a port does not fit
"""

from rein_bus.errors import FatalError, RejectedError, TransientError


class EngineLost(TransientError):
    def __init__(self, detail: str) -> None:
        super().__init__("engine.lost", detail)


class EngineRefused(TransientError):
    def __init__(self, call: str, detail: str) -> None:
        super().__init__("engine.refused", f"the engine's {call} went wrong: {detail}"[:1000], call=call)


class ProbeDisagrees(RejectedError):
    def __init__(self, *, version: int, gap: float, tolerance: float) -> None:
        super().__init__(
            "weights.probe_disagrees",
            f"under version {version} the engine's log-probabilities differ from the learner's by {gap:.3g} nats on "
            f"average, {tolerance:.3g} is allowed; look for a layer that an in-place update leaves stale",
        )
        self.gap = gap


class ProbeMissing(RejectedError):
    def __init__(self, *, version: int) -> None:
        super().__init__(
            "weights.probe_missing", f"version {version} came without a usable probe, so nobody can say it was applied"
        )


class EngineHopeless(FatalError):
    def __init__(self, *, num_starts: int, detail: str) -> None:
        super().__init__("engine.hopeless", f"the engine failed {num_starts} times in a row, last: {detail}")
