"""A service's life as its starter sees it: exit status, standard error, order of closing, ports, gRPC faces."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rein.v1 import admin_pb2, admin_pb2_grpc

SCRIPT = Path(__file__).with_name("service_for_tests.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def started(act: str, tmp_path: Path, **settings: object) -> Iterator[subprocess.Popen[str]]:
    config = tmp_path / "demo.toml"
    lines = [f"{key.replace('__', '.')} = {value!r}" for key, value in {"act": act, **settings}.items()]
    config.write_text("\n".join(lines))
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"{word!r} never came")


def events(stderr: str) -> list[str]:
    return [json.loads(line)["event"] for line in stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("act", "word"), [("work", "working"), ("connect", "connecting")])
def test_a_stop_while_working_or_connecting_unwinds_in_reverse_and_ends_with_0(
    tmp_path: Path, act: str, word: str
) -> None:
    with started(act, tmp_path) as process:
        wait_for(process, word)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out.splitlines()[-2:] == ["closed second", "closed first"]


@pytest.mark.parametrize(
    ("act", "event"),
    [("crash", "service.failed"), ("crash_task", "task.failed"), ("return", "service.loop_returned")],
)
def test_a_crash_of_the_loop_or_a_task_and_an_unasked_return_end_with_1(tmp_path: Path, act: str, event: str) -> None:
    with started(act, tmp_path) as process:
        out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert event in events(err)
    assert out.splitlines()[-2:] == ["closed second", "closed first"]


def test_an_overrun_of_the_drain_limit_ends_with_1(tmp_path: Path) -> None:
    with started("overrun", tmp_path, drain_s=0.1) as process:
        wait_for(process, "working")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "service.drain_overrun" in events(err)
    assert out.splitlines()[-1] == "closed first"


def test_a_refusal_while_building_is_one_line_and_ends_with_2(tmp_path: Path) -> None:
    with started("refuse", tmp_path, log_level="error") as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert err == "rein-demo: model folder /nowhere is missing; set key model to an existing folder\n"


@pytest.mark.parametrize("key", ["admin.port", "metrics_port"])
def test_a_taken_port_is_named_and_ends_with_2(tmp_path: Path, key: str) -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        port = owner.getsockname()[1]
        with started("work", tmp_path, log_level="error", **{key: port}) as process:
            _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert f"127.0.0.1:{port} (key {key})" in err
    assert err.count("\n") == 1


def test_admin_health_and_reflection_answer_and_drain_ends_the_service(tmp_path: Path) -> None:
    port = free_port()
    with started("work", tmp_path, admin__port=port) as process, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        wait_for(process, "working")
        status = admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=5)
        assert (status.service, status.num_in_flight, dict(status.details)) == ("demo", 3, {"colour": "green"})
        assert "[kafka]" in status.config
        health_stub: Any = health_pb2_grpc.HealthStub(channel)
        health = health_stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert {"rein.v1.Admin", "grpc.health.v1.Health"} <= listed(channel)
        admin_pb2_grpc.AdminStub(channel).Drain(admin_pb2.DrainRequest(), timeout=5)
        process.communicate(timeout=20)
    assert process.returncode == 0


def listed(channel: grpc.Channel) -> set[str]:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=5)
    return {service.name for service in answer.list_services_response.service}
