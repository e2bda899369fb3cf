"""Why a rollout failed, and whose it is."""

from dataclasses import replace

import pytest

from rein.v1 import identity_pb2 as pb
from rein_runner.domain.session import SessionEnd
from rein_runner.domain.verdict import failure_of
from rein_sandboxes.ports import Ending, PipeUse
from rein_sandboxes.scripted import exited

WELL = replace(exited(), pipe=PipeUse(num_requests=3))
THREE = SessionEnd(num_turns=3, limit=None)


@pytest.mark.parametrize("status", [0, 1, 137, -9])
def test_an_exit_status_is_no_failure_once_the_policy_was_heard(status: int) -> None:
    assert failure_of(replace(WELL, exit_status=status), session=THREE, has_patch=False) is None


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (Ending.OUT_OF_TIME, "policy.out_of_time"),
        (Ending.OUT_OF_MEMORY, "policy.out_of_memory"),
        (Ending.OUT_OF_PROCESSES, "policy.out_of_processes"),
        (Ending.OUTPUT_FLOOD, "policy.output_flood"),
    ],
)
def test_a_limit_the_policy_ran_into_is_the_policys(ending: Ending, code: str) -> None:
    failure = failure_of(replace(WELL, ending=ending), session=THREE, has_patch=True)
    assert failure is not None
    assert (failure.owner, failure.code) == (pb.OWNER_POLICY, code)


@pytest.mark.parametrize(("limit", "code"), [("turns", "policy.out_of_turns"), ("tokens", "policy.out_of_context")])
def test_a_limit_of_the_session_is_the_policys(limit: str, code: str) -> None:
    failure = failure_of(WELL, session=SessionEnd(num_turns=3, limit=limit), has_patch=False)
    assert failure is not None
    assert (failure.owner, failure.code) == (pb.OWNER_POLICY, code)


def test_time_that_ran_out_without_an_answer_is_the_models() -> None:
    result = replace(WELL, ending=Ending.OUT_OF_TIME)
    failure = failure_of(result, session=SessionEnd(num_turns=0, limit=None), has_patch=False)
    assert failure is not None
    assert (failure.owner, failure.code) == (pb.OWNER_INFERENCE, "inference.no_turns")


@pytest.mark.parametrize("status", [0, 1])
def test_a_harness_that_never_asked_failed_itself(status: int) -> None:
    result = replace(exited(status, output=b"no such option"))
    failure = failure_of(result, session=None, has_patch=False)
    assert failure is not None
    assert (failure.owner, failure.code) == (pb.OWNER_HARNESS, "harness.no_turns")
    assert "no such option" in failure.detail


def test_a_gateway_that_forgot_the_session_makes_the_rollout_absent() -> None:
    failure = failure_of(WELL, session=None, has_patch=True)
    assert failure is not None
    assert (failure.owner, failure.code) == (pb.OWNER_INFERENCE, "inference.session_lost")


def test_requests_that_found_no_gateway_are_the_models() -> None:
    result = replace(exited(1), pipe=PipeUse(num_requests=4, num_unreachable=4))
    failure = failure_of(result, session=None, has_patch=False)
    assert failure is not None
    assert failure.owner == pb.OWNER_INFERENCE
