"""What a grade is worth, and when one is used again."""

import pytest

from rein.v1 import identity_pb2 as pb
from rein_grader.domain.grade import Grade, GradeKey, KnownGrades, failure

PASSED = Grade(is_passed=True, tests=(), failure=None, output=b"", wall_s=1.0, cpu_s=0.5)
OUT_OF_TIME = failure(pb.OWNER_POLICY, "policy.tests_out_of_time", "x")


def key(patch: str = "p", *, memory_bytes: int = 1) -> GradeKey:
    return GradeKey(task_digest="t", patch_sha256=patch, grading_s=10.0, memory_bytes=memory_bytes)


@pytest.mark.parametrize(
    ("is_passed", "own", "reward"),
    [(True, None, 1.0), (False, None, 0.0), (False, OUT_OF_TIME, 0.0), (True, OUT_OF_TIME, 0.0)],
)
def test_only_a_clean_pass_is_worth_one(is_passed: bool, own: pb.Failure | None, reward: float) -> None:
    assert Grade(is_passed=is_passed, tests=(), failure=own, output=b"", wall_s=0, cpu_s=None).reward == reward


def test_a_grade_is_found_for_the_same_patch_under_the_same_limits_only() -> None:
    known = KnownGrades()
    known.keep(key(), grade=PASSED, origin="r.g0/0#1")
    found = known.find(key())
    assert found is not None
    assert found.origin == "r.g0/0#1"
    assert known.find(key("other")) is None
    assert known.find(key(memory_bytes=2)) is None


def test_the_grade_used_longest_ago_is_forgotten_first() -> None:
    known = KnownGrades(most=2)
    for patch in ("a", "b"):
        known.keep(key(patch), grade=PASSED, origin=patch)
    known.find(key("a"))
    known.keep(key("c"), grade=PASSED, origin="c")
    assert known.find(key("a")) is not None
    assert known.find(key("b")) is None
