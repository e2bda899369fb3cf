"""Commands that read topics, as a user calls them, on a real broker."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tomlkit
from google.protobuf.message import Message
from pyarrow import parquet

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.kafka import KafkaBus
from rein_bus.preflight import drop_topics
from rein_bus.settings import KafkaSettings
from rein_cli.main import main
from rein_contracts.topics import TOPICS

pytestmark = pytest.mark.kafka

GROUP = pb.Identity(run="r", task="t", group="r.g0")
MEMBER = pb.Identity(run="r", task="t", group="r.g0", member=0, attempt=1)

EVENTS: tuple[Message, ...] = (
    ev.RunChanged(run="r", state=ev.RUN_STATE_RUNNING, spec=ev.RunSpec(name="r", steps=1)),
    ev.GroupOpened(group=GROUP, size=1, step=1, purpose=pb.PURPOSE_TRAIN),
    ev.RolloutRequested(identity=MEMBER),
    ev.TurnCaptured(
        identity=MEMBER,
        prompt_ids=[1, 2],
        num_prompt_tokens=2,
        sampled_ids=[3],
        logprobs=[-0.5],
        versions=[ev.VersionSpan(version=1, start=0, end=1)],
        is_trainable=True,
    ),
    ev.RolloutGraded(identity=MEMBER, reward=1.0),
    ev.GroupAssembled(
        group=GROUP,
        purpose=pb.PURPOSE_TRAIN,
        state=ev.GROUP_STATE_READY,
        step=1,
        members=[ev.MemberOutcome(identity=MEMBER, reward=1.0, num_turns=1)],
    ),
    ev.StepCompleted(run="r", step=1, version=2, groups=["r.g0"], mean_reward=1.0),
    ev.RunChanged(run="r", state=ev.RUN_STATE_COMPLETED, spec=ev.RunSpec(name="r", steps=1)),
)

Rein = Callable[..., "asyncio.Future[tuple[int, str]]"]


@pytest.fixture
def rein(kafka_settings: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Rein:
    """Call the command against the test's topics; its exit status and standard output."""
    config = tmp_path / "cli.toml"
    config.write_text(tomlkit.dumps({"kafka": kafka_settings.model_dump(mode="json", exclude_none=True)}))

    async def call(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        status = await asyncio.to_thread(main, [*words, "--config", str(config)])
        return status, capsys.readouterr().out

    return call  # type: ignore[return-value]


@pytest.fixture
async def published(kafka_settings: KafkaSettings) -> None:
    async with KafkaBus(kafka_settings) as bus:
        await bus.publish(*EVENTS)


@pytest.mark.usefixtures("published")
async def test_a_topic_is_tapped_as_lines_and_as_columns(rein: Rein, tmp_path: Path) -> None:
    status, out = await rein("tap", "turn.captured", "--run", "r")
    assert status == 0
    (row,) = map(json.loads, out.splitlines())
    assert (row["key"], row["event"]["sampled_ids"]) == ("r.g0", [3])
    assert await rein("tap", "turn.captured", "--group", "r.g9") == (0, "")
    file = tmp_path / "turns.parquet"
    status, out = await rein("tap", "turn.captured", "--parquet", str(file), "--json")
    assert json.loads(out) == {"file": str(file), "rows": 1}
    assert parquet.read_table(file).to_pylist()[0]["logprobs"] == [-0.5]


@pytest.mark.usefixtures("published")
async def test_every_topic_can_be_tapped(rein: Rein, tmp_path: Path) -> None:
    for topic in TOPICS:
        assert (await rein("tap", topic.noun_event, "--parquet", str(tmp_path / topic.noun_event)))[0] == 0


@pytest.mark.usefixtures("published")
async def test_a_run_is_watched_and_audited_from_its_topics(rein: Rein) -> None:
    status, out = await rein("watch", "--once")
    assert status == 0
    assert "run r COMPLETED: step 1/1, 1 training rollouts rewarded" in out
    status, out = await rein("audit", "r", "--json")
    verdict = json.loads(out)
    assert status == 0, verdict
    assert (verdict["requested"], verdict["trained"], verdict["lost"], verdict["doubled"]) == (1, 1, 0, 0)


async def test_an_offence_ends_the_audit_with_1_and_names_it(rein: Rein, kafka_settings: KafkaSettings) -> None:
    async with KafkaBus(kafka_settings) as bus:
        await bus.publish(*[event for event in EVENTS if not isinstance(event, ev.GroupAssembled)])
    status, out = await rein("audit", "r")
    assert status == 1
    assert "OFFENCE rollout.lost r.g0/0" in out
    assert "OFFENCE group.not_ready r.g0" in out


async def test_topics_are_checked_and_only_made_when_asked(rein: Rein, kafka_settings: KafkaSettings) -> None:
    assert (await rein("topics"))[0] == 0
    await drop_topics(kafka_settings, topics=[topic for topic in TOPICS if topic.message is ev.AlertRaised])
    for _ in range(50):  # a broker tells of a topic for a moment after it was deleted
        status, out = await rein("topics")
        if status == 1:
            break
    assert f"{kafka_settings.prefix}.alert.raised.v1 is missing" in out
    status, out = await rein("topics", "--create", "--json")
    assert status == 0
    assert "1 created" in json.loads(out)["cluster"]
