"""A run's progress folded from its events, and the rows `rein tap` makes of them."""

import json
from pathlib import Path

from google.protobuf.message import Message
from pyarrow import parquet

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.ports import Place, Record
from rein_cli.progress import Progress
from rein_cli.rows import fields_of, row_of, write_parquet
from rein_cli.wanted import Filter

IDENTITY = pb.Identity(run="r", task="t", group="r.e0", member=1, attempt=2)


def outcome(member: int, reward: float | None) -> ev.MemberOutcome:
    identity = pb.Identity(run="r", group="r.e0", member=member, attempt=1)
    failure = pb.Failure(code="sandbox.start_failed") if reward is None else None
    return ev.MemberOutcome(identity=identity, reward=reward, failure=failure)


def test_an_evaluation_is_told_once_when_its_last_group_ends() -> None:
    progress = Progress("r")
    spec = ev.RunSpec(steps=2, eval=ev.EvalSpec(num_tasks=1))
    end = ev.GroupAssembled(
        group=IDENTITY,
        purpose=pb.PURPOSE_EVAL,
        state=ev.GROUP_STATE_EVALUATED,
        members=[outcome(0, 1.0), outcome(1, None)],
    )
    events: list[Message] = [
        ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=spec),
        ev.GroupOpened(group=IDENTITY, purpose=pb.PURPOSE_EVAL),
        end,
        end,
        ev.StepCompleted(run="r", step=1, mean_reward=0.5),
        ev.RunChanged(run="r", state=ev.RUN_STATE_COMPLETED, spec=spec),
    ]
    news = [line for event in events for line in progress.apply(event)]
    assert news[0] == "run r RUNNING"
    assert news[1] == "evaluation after step 0: pass rate 1.000 of 1"
    assert news[2].startswith("step 1/2: reward 0.500")
    assert news[3] == "run r COMPLETED"
    assert progress.has_ended
    assert progress.figures()["absent"] == {"sandbox.start_failed": 1}
    assert "0: 1.000" in progress.line()


def test_rows_keep_numbers_and_say_what_is_absent() -> None:
    event = ev.RolloutFinished(identity=IDENTITY, peak_memory_bytes=2**40)
    row = fields_of(event)
    assert row["peak_memory_bytes"] == 2**40
    assert row["cpu_s"] is None
    assert row["failure"] is None
    assert row["identity"] == {"run": "r", "task": "t", "group": "r.e0", "member": 1, "attempt": 2}
    assert fields_of(ev.StepCompleted(groups=["a"]))["groups"] == ["a"]
    assert fields_of(ev.RolloutGraded(tests=[ev.TestResult(outcome=ev.TEST_OUTCOME_PASSED)]))["tests"] == [
        {"test": "", "outcome": "TEST_OUTCOME_PASSED", "duration_s": 0.0}
    ]


def test_every_topic_can_be_written_as_columns(tmp_path: Path) -> None:
    event = ev.TurnCaptured(identity=IDENTITY, sampled_ids=[1, 2], logprobs=[-0.5, -1.0])
    record: Record[Message] = Record(event, key="r.e0", place=Place(ev.TurnCaptured, 3, 17), at_ms=5)
    rows = [row_of(record)]
    assert json.loads(json.dumps(rows[0]))["event"]["sampled_ids"] == [1, 2]
    assert write_parquet(rows, file=tmp_path / "turns.parquet") == 1
    (column,) = parquet.read_table(tmp_path / "turns.parquet").to_pylist()
    assert (column["offset"], column["sampled_ids"], column["parent_turn"]) == (17, [1, 2], None)


def test_a_filter_knows_every_kind_of_identity() -> None:
    assert Filter(run="r", task="t", group="r.e0").passes(ev.TurnCaptured(identity=IDENTITY))
    assert Filter(run="r", group="r.e0").passes(ev.GroupAssembled(group=IDENTITY))
    assert Filter(run="r").passes(ev.StepCompleted(run="r"))
    assert not Filter(run="other").passes(ev.StepCompleted(run="r"))
    assert not Filter(task="t").passes(ev.StepCompleted(run="r"))
    assert Filter().passes(ev.NodeReported())
