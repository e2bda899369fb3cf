"""What a grade is, and when one may be used again. Pure.

The reward is 1 when each listed test was seen to pass, else 0: a test that is missing counts as failed. A grade exists
only where the tests were run, or where the patch itself made that impossible; anything else is an absent reward.
"""

from collections import OrderedDict
from dataclasses import dataclass

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb

RULES_VERSION = "1"
"""Of the rules on this page and in rein_tasks.verification; stands in every RolloutGraded."""

MOST_DETAIL_CHARS = 2000
MOST_REUSABLE = 10_000


@dataclass(frozen=True, slots=True)
class Grade:
    """The outcome of one grading."""

    is_passed: bool
    """Each listed test was seen to pass, and the run came to its end."""
    tests: tuple[ev.TestResult, ...]
    failure: pb.Failure | None
    """The policy's own, when it decided the reward: a patch that does not apply, a limit its code ran into."""
    output: bytes
    """Newest output of the test run."""
    wall_s: float
    cpu_s: float | None

    @property
    def reward(self) -> float:
        return float(self.is_passed and self.failure is None)


@dataclass(frozen=True, slots=True)
class GradeKey:
    """What a grade is a function of."""

    task_digest: str
    patch_sha256: str
    grading_s: float
    memory_bytes: int
    rules_version: str = RULES_VERSION


@dataclass(frozen=True, slots=True)
class KnownGrade:
    """A grade, and the attempt it was first given to."""

    grade: Grade
    origin: str


class KnownGrades:
    """The newest grades of this process; small policies write the same patch often."""

    def __init__(self, *, most: int = MOST_REUSABLE) -> None:
        self._known: OrderedDict[GradeKey, KnownGrade] = OrderedDict()
        self._most = most

    def find(self, key: GradeKey) -> KnownGrade | None:
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def keep(self, key: GradeKey, *, grade: Grade, origin: str) -> None:
        self._known[key] = KnownGrade(grade, origin)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def failure(owner: pb.Owner.ValueType, code: str, detail: str) -> pb.Failure:
    return pb.Failure(owner=owner, code=code, detail=detail[:MOST_DETAIL_CHARS])
