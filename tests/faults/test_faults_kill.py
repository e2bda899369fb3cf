"""kill -9 of a service in the middle of a run: the run completes, every rollout has one end, none is trained twice."""

import json
import os
import signal
import subprocess
import time

import pytest

from rein_cli.testing import REIN, RUN_WITHIN_S, Stack

pytestmark = [pytest.mark.loop, pytest.mark.timeout(900)]

#: What must have been published before the kill, so that the service is in the middle of its work.
WORK_OF = {
    "runner": "rollout.leased",
    "gateway": "turn.captured",
    "assembler": "rollout.graded",
    "learner": "group.assembled",
    "weightserver": "step.completed",
}


@pytest.mark.parametrize("service", WORK_OF)
def test_a_run_survives_the_death_of(stack: Stack, service: str) -> None:
    name, file = stack.run_file()
    following = subprocess.Popen(
        [str(REIN), "run", str(file), "--follow", "--home", str(stack.home)], stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for_work(stack, name, topic=WORK_OF[service])
        record = json.loads((stack.home / "run" / f"{service}.json").read_text())
        os.kill(record["pid"], signal.SIGKILL)
        stack.up()
        assert json.loads((stack.home / "run" / f"{service}.json").read_text())["pid"] != record["pid"]
        output, _ = following.communicate(timeout=RUN_WITHIN_S)
    finally:
        following.kill()
        following.wait()
    assert following.returncode == 0, output
    audit = stack.json("audit", name)
    assert audit["is_clean"], audit["offences"]
    assert (audit["state"], audit["lost"], audit["doubled"], audit["open"]) == ("COMPLETED", 0, 0, 0)
    accounted = audit["trained"] + audit["evaluated"] + sum(audit["absent"].values()) + sum(audit["set_aside"].values())
    assert audit["requested"] == accounted


def wait_for_work(stack: Stack, name: str, *, topic: str, within_s: float = 240) -> None:
    """Until the topic has an event of the run. Each look starts a process, so it needs no pause of its own."""
    deadline_s = time.monotonic() + within_s
    while not stack.tap(topic, run=name):
        assert time.monotonic() < deadline_s, f"no {topic} of {name} within {within_s} s"
