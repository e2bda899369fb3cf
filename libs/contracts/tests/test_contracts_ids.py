"""Names of runs, groups, rollouts and attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import (
    RUN_NAME,
    AttemptId,
    RolloutId,
    attempt_id,
    group_id,
    is_run_name,
    rollout_id,
    run_of_group,
)

RUNS = st.from_regex(RUN_NAME, fullmatch=True)


@given(run=RUNS, number=st.integers(0, 2**31), is_eval=st.booleans())
def test_a_group_names_its_run(run: str, number: int, is_eval: bool) -> None:
    purpose = pb.PURPOSE_EVAL if is_eval else pb.PURPOSE_TRAIN
    assert run_of_group(group_id(run, purpose=purpose, number=number)) == run


def test_training_and_evaluation_groups_never_share_a_name() -> None:
    assert group_id("demo", purpose=pb.PURPOSE_TRAIN, number=7) == "demo.g7"
    assert group_id("demo", purpose=pb.PURPOSE_EVAL, number=7) == "demo.e7"


def test_ids_read_as_they_stand_in_keys_and_paths() -> None:
    identity = pb.Identity(run="demo", task="t", group="demo.g7", member=3, attempt=2)
    assert rollout_id(identity) == RolloutId("demo.g7", 3)
    assert str(rollout_id(identity)) == "demo.g7/3"
    assert attempt_id(identity) == AttemptId("demo.g7", 3, 2)
    assert str(attempt_id(identity)) == "demo.g7/3#2"
    assert attempt_id(identity).rollout == rollout_id(identity)


@pytest.mark.parametrize("name", ["demo", "a", "0-9", "x" * 40])
def test_run_names(name: str) -> None:
    assert is_run_name(name)


@pytest.mark.parametrize("name", ["", "Demo", "-demo", "demo.1", "a/b", "x" * 41, "demo\n", "é"])
def test_no_run_names(name: str) -> None:
    assert not is_run_name(name)
