"""What a run's specification must satisfy before anything is started."""

from collections.abc import Collection, Iterator

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
    """Raises SpecRejected for the first field that is wrong, with what it holds and what it should hold."""
    for rejected in (*_names(spec), *_numbers(spec), *_harnesses(spec, harnesses), *_evaluation(spec)):
        raise rejected


def _names(spec: ev.RunSpec) -> Iterator[SpecRejected]:
    if not is_run_name(spec.name):
        yield SpecRejected("name", spec.name, "1 to 40 characters a-z, 0-9 and -, not starting with -")
    for path in ("task_set", "model"):
        if not getattr(spec, path):
            yield SpecRejected(path, "", "the path of a folder")


def _numbers(spec: ev.RunSpec) -> Iterator[SpecRejected]:
    for path in _POSITIVE:
        if (value := _field(spec, path)) <= 0:
            yield SpecRejected(path, value, "a number above 0")
    if spec.min_group_size > spec.group_size:
        yield SpecRejected("min_group_size", spec.min_group_size, f"at most group_size ({spec.group_size})")


def _harnesses(spec: ev.RunSpec, known: Collection[str]) -> Iterator[SpecRejected]:
    choices = f"one of: {', '.join(sorted(known))}"
    if not spec.harnesses:
        yield SpecRejected("harnesses", "", choices)
    for share in spec.harnesses:
        if share.harness not in known:
            yield SpecRejected("harnesses", share.harness, choices)
        if share.weight <= 0:
            yield SpecRejected(f"harnesses.{share.harness}", share.weight, "a weight above 0")


def _evaluation(spec: ev.RunSpec) -> Iterator[SpecRejected]:
    for step in spec.eval.at_steps:
        if step > spec.steps:
            yield SpecRejected("eval.at_steps", step, f"steps from 0 to {spec.steps}")
    if spec.eval.at_steps and spec.eval.samples_per_task == 0:
        yield SpecRejected("eval.samples_per_task", 0, "a number above 0")


def _field(spec: ev.RunSpec, path: str) -> float:
    value: object = spec
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, int | float)
    return value
