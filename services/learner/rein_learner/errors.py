"""The learner's errors. What is rejected ends the run, not the process: a stop alert names it and the run is left.

ReinError
└── RejectedError
    ├── ModelUnusable        the run's model folder cannot be loaded
    ├── LossNotFinite        a step's loss or gradient is not a number; nothing was updated
    ├── CorrelationLow       recorded and recomputed probabilities disagree; nothing was updated
    ├── CheckpointDamaged    one checkpoint cannot be used; the one before is
    └── CheckpointsLost      none of a run's checkpoints can be used
"""

from pathlib import Path

from rein_bus.errors import RejectedError


class ModelUnusable(RejectedError):
    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            "learner.model_unusable",
            f"cannot load the policy from {folder} ({reason}); give the run a model folder in Hugging Face layout",
        )


class LossNotFinite(RejectedError):
    def __init__(self, *, step: int, loss: float, grad_norm: float) -> None:
        super().__init__(
            "learner.loss_not_finite",
            f"step {step} has loss {loss} and gradient norm {grad_norm}; the policy was not updated",
        )


class CorrelationLow(RejectedError):
    def __init__(self, *, step: int, correlation: float, limit: float, num_tokens: int) -> None:
        super().__init__(
            "learner.correlation_low",
            f"before step {step}, recorded and recomputed probabilities of {num_tokens} tokens correlate by "
            f"{correlation:.6f}, the limit is {limit:g}; what is trained on is not what was sampled",
        )


class CheckpointDamaged(RejectedError):
    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__("checkpoint.damaged", f"{folder} cannot be used ({reason}); the checkpoint before it is")


class CheckpointsLost(RejectedError):
    def __init__(self, run: str, folder: Path) -> None:
        super().__init__(
            "checkpoint.all_damaged",
            f"no checkpoint of run {run} in {folder} can be used; restore one or start a run of another name",
        )
