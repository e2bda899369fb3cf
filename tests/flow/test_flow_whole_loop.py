"""All nine services on a real broker, with vLLM, both harnesses, real sandboxes and real tests of real packages."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from rein_cli.testing import RUN_WITHIN_S, Stack
from rein_contracts.topics import TOPICS

pytestmark = [pytest.mark.loop, pytest.mark.timeout(1500)]

NOTHING_YET = {"alert.raised", "deadletter.recorded", "finding.recorded", "rollout.fenced"}


@pytest.fixture(scope="module")
def finished(stack: Stack) -> str:
    """Name of a run that went from an evaluation through two steps to another evaluation."""
    name, file = stack.run_file(eval={"at_steps": [0, 2], "num_tasks": 4, "samples_per_task": 1})
    done = stack.rein("run", str(file), "--follow", within_s=RUN_WITHIN_S)
    assert done.returncode == 0, done.stderr + done.stdout
    return name


def test_a_run_completes_and_its_audit_is_clean(stack: Stack, finished: str) -> None:
    audit = stack.json("audit", finished)
    assert audit["is_clean"], audit["offences"]
    assert audit["state"] == "COMPLETED"
    assert (audit["lost"], audit["doubled"], audit["steps"]) == (0, 0, 2)
    assert audit["trained"] > 0


def test_both_harnesses_took_part_and_every_turn_can_be_trained_on(stack: Stack, finished: str) -> None:
    rollouts = stack.tap("rollout.finished", run=finished)
    assert {rollout["harness"] for rollout in rollouts} == {"claude-code", "mini-swe-agent"}
    turns = stack.tap("turn.captured", run=finished)
    assert {turn["dialect"] for turn in turns} == {"anthropic.messages", "openai.chat"}
    assert all(turn["is_trainable"] for turn in turns)


def test_a_rollout_is_one_segment_unless_its_harness_rewrote_the_past(stack: Stack, finished: str) -> None:
    """mini-swe-agent takes a turn it cannot parse out of its history: that is a fork, and a finding says so."""
    findings = stack.tap("finding.recorded", run=finished)
    forked = {key_of(finding["identity"]) for finding in findings if finding["code"] == "session.forked"}
    members = [member for group in stack.tap("group.assembled", run=finished) for member in group["members"]]
    whole = [member for member in members if member["num_turns"] > 0 and key_of(member["identity"]) not in forked]
    assert len(whole) > len(members) / 2
    assert {member["num_segments"] for member in whole} == {1}


def key_of(identity: dict[str, Any]) -> tuple[str, int, int]:
    return identity["group"], identity["member"], identity["attempt"]


def test_recorded_and_recomputed_probabilities_agree_at_every_step(stack: Stack, finished: str) -> None:
    steps = {step["step"]: step for step in stack.tap("step.completed", run=finished)}
    known = [step for step in steps.values() if step.get("correlation") is not None]
    assert known, "no step had enough tokens of its own version"
    assert min(step["correlation"] for step in known) >= 0.99
    assert max(step["max_logprob_gap"] for step in known) < 0.01
    assert max(step["max_staleness_versions"] for step in steps.values()) <= 1


def test_every_version_was_confirmed_by_the_node_and_turns_carry_confirmed_ones(stack: Stack, finished: str) -> None:
    published = {int(policy["version"]) for policy in stack.tap("policy.published", run=finished)}
    confirmed = {int(node["version"]) for node in stack.tap("node.reported", run=finished)} - {0}
    assert published == {1, 2, 3} == confirmed
    spans = [span for turn in stack.tap("turn.captured", run=finished) for span in turn["versions"]]
    assert {int(span["version"]) for span in spans} <= published


@pytest.mark.parametrize("topic", [topic.noun_event for topic in TOPICS])
def test_every_topic_can_be_tapped(stack: Stack, finished: str, topic: str) -> None:
    events = stack.tap(topic, run=finished) if topic != "assembler.checkpointed" else _all(stack, topic)
    assert events or topic in NOTHING_YET


def _all(stack: Stack, topic: str) -> list[Any]:
    done = stack.rein("tap", topic, "--from-beginning")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_events_become_columns_of_a_parquet_file(stack: Stack, finished: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file = tmp_path / "turns.parquet"
    done = stack.rein("tap", "turn.captured", "--from-beginning", "--run", finished, "--parquet", str(file))
    assert done.returncode == 0, done.stderr
    assert pq.read_table(file).num_rows == len(stack.tap("turn.captured", run=finished))


def test_every_service_lists_itself_by_reflection(stack: Stack) -> None:
    own = {"dispatcher": "rein.v1.Dispatcher"}
    addresses = {name: state["address"] for name, state in stack.json("status").items()}
    assert len(addresses) == 9
    for name, address in addresses.items():
        with grpc.insecure_channel(address) as channel:
            services = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert {"rein.v1.Admin", "grpc.health.v1.Health", own.get(name, "rein.v1.Admin")} <= services
