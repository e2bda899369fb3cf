"""What a run's specification must satisfy before anything is started."""

from collections.abc import Collection

from rein.v1 import events_pb2 as ev
from rein_contracts.ids import is_run_name
from rein_dispatcher.errors import SpecRejected

_POSITIVE = (
    "group_size",
    "min_group_size",
    "groups_per_step",
    "max_attempts",
    "group_deadline_s",
    "sampling.temperature",
    "sampling.max_tokens",
    "limits.wall_s",
    "limits.memory_bytes",
    "limits.grading_s",
    "objective.learning_rate",
    "objective.max_row_tokens",
)


def check(spec: ev.RunSpec, *, harnesses: Collection[str]) -> None:
    """Raises SpecRejected, naming the field, what it holds and what it should hold."""
    if not is_run_name(spec.name):
        raise SpecRejected("name", spec.name, "1 to 40 characters a-z, 0-9 and -, not starting with -")
    for path in ("task_set", "model"):
        if not getattr(spec, path):
            raise SpecRejected(path, "", "the path of a folder")
    for path in _POSITIVE:
        if (value := _field(spec, path)) <= 0:
            raise SpecRejected(path, value, "a number above 0")
    if spec.min_group_size > spec.group_size:
        raise SpecRejected("min_group_size", spec.min_group_size, f"at most group_size ({spec.group_size})")
    if not spec.harnesses:
        raise SpecRejected("harnesses", "", f"at least one of: {', '.join(sorted(harnesses))}")
    for share in spec.harnesses:
        if share.harness not in harnesses:
            raise SpecRejected("harnesses", share.harness, f"one of: {', '.join(sorted(harnesses))}")
        if share.weight <= 0:
            raise SpecRejected(f"harnesses.{share.harness}", share.weight, "a weight above 0")
    for step in spec.eval.at_steps:
        if step > spec.steps:
            raise SpecRejected("eval.at_steps", step, f"steps from 0 to {spec.steps}")
    if spec.eval.at_steps and spec.eval.samples_per_task == 0:
        raise SpecRejected("eval.samples_per_task", 0, "a number above 0")


def _field(spec: ev.RunSpec, path: str) -> float:
    value: object = spec
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, int | float)
    return value
