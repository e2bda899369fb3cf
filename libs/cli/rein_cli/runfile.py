"""A run's TOML file: its keys, what they mean, and what holds where one is left out.

Paths are relative to the file. What a run may be is checked by the dispatcher; here only keys and types are.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_service.config import load_file

GIB = 1024**3
MIB = 1024**2


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


class SamplingTable(_Table):
    """How the policy is sampled."""

    temperature: float = 1.0
    """Softmax temperature, above 0."""

    max_tokens: int = 512
    """Most tokens in one model call."""


class LimitsTable(_Table):
    """Bounds on one rollout; 0 = no bound."""

    wall_s: float = 120.0
    """Wall-clock time of the harness, seconds."""

    turns: int = 24
    """Model calls."""

    context_tokens: int = 0
    """Prompt and sampled tokens of one model call; 0 = what the engine takes."""

    memory_bytes: int = GIB
    """Memory of the sandbox."""

    processes: int = 128
    """Processes alive at once in the sandbox."""

    output_bytes: int = MIB
    """Harness output kept."""

    grading_s: float = 60.0
    """Wall-clock time of grading, seconds."""


class EvalTable(_Table):
    """Evaluation on the held-out split."""

    at_steps: tuple[int, ...] = ()
    """After these learner steps; 0 = before training. Empty = never."""

    num_tasks: int = 0
    """Held-out tasks used; 0 = all."""

    samples_per_task: int = 1
    """Rollouts per held-out task."""


class ObjectiveTable(_Table):
    """What the learner does with a batch."""

    learning_rate: float = 1e-5
    """Of AdamW."""

    clip_low: float = 0.2
    """The probability ratio is clipped at 1 - clip_low."""

    clip_high: float = 0.28
    """The probability ratio is clipped at 1 + clip_high."""

    weight_decay: float = 0.0
    """Of AdamW."""

    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""

    min_correlation: float = 0.99
    """The run fails when recorded and recomputed log-probabilities correlate less."""

    max_row_tokens: int = 4096
    """Longest packed row."""


class RunFile(_Table):
    """The whole file."""

    name: str
    """a-z, 0-9 and -, at most 40 characters; unique in the deployment."""

    task_set: Path
    """Folder of the task set, readable by dispatcher, runners and graders."""

    model: Path
    """Folder of the initial policy, Hugging Face layout."""

    harnesses: dict[str, float]
    """Harness name = weight, e.g. claude-code = 1."""

    steps: int
    """Learner steps."""

    group_size: int = 8
    """Rollouts in a group (same task)."""

    min_group_size: int = 2
    """Rewards a group needs to be trained on."""

    groups_per_step: int = 8
    """Groups in one learner step."""

    max_staleness_versions: int = 1
    """How many versions a group may lag behind the policy that trains on it."""

    max_attempts: int = 3
    """Attempts per rollout before it is given up."""

    group_deadline_s: float = 900.0
    """A group still open after this many seconds ends with what it has."""

    seed: int = 0
    """Of every random choice of the dispatcher."""

    shuffle_rewards: bool = False
    """Permute rewards inside each batch: the control that must show no gain."""

    sampling: SamplingTable = SamplingTable()
    limits: LimitsTable = LimitsTable()
    eval: EvalTable = EvalTable()
    objective: ObjectiveTable = ObjectiveTable()


_NESTED = {"task_set", "model", "harnesses", "sampling", "limits", "eval", "objective"}


def load_run(file: Path) -> ev.RunSpec:
    """The specification in `file`. Raises ConfigRejected with one line."""
    run = load_file(RunFile, file=file)
    folder = file.resolve().parent
    return ev.RunSpec(
        **run.model_dump(exclude=_NESTED),
        task_set=str((folder / run.task_set).resolve()),
        model=str((folder / run.model).resolve()),
        harnesses=[ev.HarnessShare(harness=name, weight=weight) for name, weight in run.harnesses.items()],
        sampling=pb.Sampling(**run.sampling.model_dump()),
        limits=pb.Limits(**run.limits.model_dump()),
        eval=ev.EvalSpec(**run.eval.model_dump()),
        objective=ev.Objective(**run.objective.model_dump()),
    )
