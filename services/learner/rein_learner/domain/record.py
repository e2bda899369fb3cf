"""What a checkpoint says besides tensors: the step, where reading goes on, and the events that announce it.

The events are part of the checkpoint, so that after a crash the very same ones are published again: whether anyone saw
them before need not be known.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.json_format import MessageToDict, ParseDict

from rein.v1 import events_pb2 as ev
from rein.v1 import weights_pb2 as wt

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """State of a run after a step; step 0 is the initial policy."""

    offsets: Mapping[int, int]
    """First offset of GroupAssembled still needed, by partition."""
    manifest: wt.WeightManifest
    policy: ev.PolicyPublished
    completed: ev.StepCompleted | None
    """None at step 0."""

    @property
    def run(self) -> str:
        return self.policy.run

    @property
    def step(self) -> int:
        return self.policy.step

    @property
    def version(self) -> int:
        return self.policy.version


def to_json(record: Record, *, digests: Mapping[str, str]) -> str:
    """`digests` are those of the files beside it."""
    whole = {
        "format": FORMAT,
        "offsets": {str(partition): offset for partition, offset in sorted(record.offsets.items())},
        "manifest": MessageToDict(record.manifest),
        "policy": MessageToDict(record.policy),
        "completed": None if record.completed is None else MessageToDict(record.completed),
        "digests": dict(sorted(digests.items())),
    }
    return json.dumps(whole, indent=1) + "\n"


def from_json(text: str) -> tuple[Record, dict[str, str]]:
    """The record and the digests. Raises ValueError (json and ParseError are) or KeyError for anything else."""
    whole = json.loads(text)
    if whole["format"] != FORMAT:
        raise ValueError(f"format {whole['format']}, not {FORMAT}")
    record = Record(
        offsets={int(partition): int(offset) for partition, offset in whole["offsets"].items()},
        manifest=ParseDict(whole["manifest"], wt.WeightManifest()),
        policy=ParseDict(whole["policy"], ev.PolicyPublished()),
        completed=None if whole["completed"] is None else ParseDict(whole["completed"], ev.StepCompleted()),
    )
    return record, {str(name): str(digest) for name, digest in whole["digests"].items()}
