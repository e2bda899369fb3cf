"""Which turns train, and why the others do not; large turns come back from their bytes as they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_tokens import BytesDamaged, spill, turn_of, unspill


def good() -> ev.TurnCaptured:
    return ev.TurnCaptured(
        turn=0,
        kind=ev.TURN_KIND_MAIN,
        prompt_ids=[5, 6],
        num_prompt_tokens=2,
        sampled_ids=[7, 8, 9],
        logprobs=[-0.1, -0.2, 0.0],
        versions=[ev.VersionSpan(version=3, start=0, end=1), ev.VersionSpan(version=4, start=1, end=3)],
        is_trainable=True,
    )


def test_a_whole_turn_trains_and_knows_the_version_of_each_token() -> None:
    turn = turn_of(good())
    assert turn.flaw is None
    assert turn.versions.tolist() == [3, 4, 4]
    assert turn.logprobs.tolist() == pytest.approx([-0.1, -0.2, 0.0])


def spans(*bounds: tuple[int, int, int]) -> list[ev.VersionSpan]:
    return [ev.VersionSpan(version=version, start=start, end=end) for version, start, end in bounds]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ev.TurnCaptured(logprobs=[-1.0]), "tokens.length_mismatch"),
        (ev.TurnCaptured(sampled_ids=[1]), "tokens.length_mismatch"),
        (ev.TurnCaptured(kind=ev.TURN_KIND_SIDE), "turn.side"),
        (ev.TurnCaptured(versions=spans((5, 3, 4))), "tokens.version_gap"),
        (ev.TurnCaptured(arrays=pb.BlobRef(sha256="ab", size_bytes=1)), "tokens.arrays_unreadable"),
    ],
)
def test_a_turn_whose_parts_do_not_fit_together_is_set_aside_by_name(change: ev.TurnCaptured, code: str) -> None:
    event = good()
    event.MergeFrom(change)
    turn = turn_of(event)
    assert turn.flaw is not None
    assert turn.flaw.code == code
    assert len(turn.logprobs) == len(turn.versions) == 0


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("logprobs", [-0.1, float("nan"), -0.1], "tokens.logprob_invalid"),
        ("logprobs", [-0.1, float("-inf"), -0.1], "tokens.logprob_invalid"),
        ("logprobs", [-0.1, 0.5, -0.1], "tokens.logprob_invalid"),
        ("sampled_ids", [], "tokens.sample_empty"),
        ("versions", spans((1, 0, 2)), "tokens.version_gap"),
        ("versions", spans((1, 0, 2), (2, 1, 3)), "tokens.version_gap"),
        ("versions", spans((1, 0, 0), (2, 0, 3)), "tokens.version_gap"),
        ("versions", spans((0, 0, 3)), "tokens.version_zero"),
    ],
)
def test_a_turn_that_cannot_be_right_is_set_aside_by_name(field: str, value: list[object], code: str) -> None:
    event = good()
    event.ClearField(field)  # type: ignore[arg-type]
    getattr(event, field).extend(value)
    flaw = turn_of(event).flaw
    assert flaw is not None
    assert flaw.code == code


def test_what_the_gateway_withheld_stays_withheld_with_its_reason() -> None:
    event = good()
    event.is_trainable, event.untrainable = False, "logprobs.raw"
    flaw = turn_of(event).flaw
    assert flaw is not None
    assert (flaw.code, flaw.detail) == ("turn.untrainable", "logprobs.raw")


_ids = st.lists(st.integers(0, 2**32 - 1), max_size=20)
_floats = st.lists(st.floats(-50, 0, width=32), max_size=20)


@given(_ids, _ids, _floats)
def test_spilled_arrays_come_back_as_they_were(prompt: list[int], sample: list[int], logprobs: list[float]) -> None:
    data = spill(prompt_ids=prompt, sampled_ids=sample, logprobs=logprobs)
    assert data == spill(prompt_ids=prompt, sampled_ids=sample, logprobs=np.array(logprobs).tolist())
    back = unspill(data)
    assert back.prompt_ids.tolist() == prompt
    assert back.sampled_ids.tolist() == sample
    assert back.logprobs.tolist() == logprobs


def test_a_spilled_turn_is_judged_like_any_other() -> None:
    event = good()
    data = spill(prompt_ids=event.prompt_ids, sampled_ids=event.sampled_ids, logprobs=event.logprobs)
    for field in ("prompt_ids", "sampled_ids", "logprobs"):
        event.ClearField(field)
    event.arrays.sha256 = "ab"
    turn = turn_of(event, arrays=unspill(data))
    assert turn.flaw is None
    assert turn.sampled_ids.tolist() == [7, 8, 9]


def test_bytes_of_something_else_are_refused() -> None:
    with pytest.raises(BytesDamaged, match="not safetensors"):
        unspill(b"nonsense")
