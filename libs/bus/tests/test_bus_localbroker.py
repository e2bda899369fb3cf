"""The local broker: what keeps it from starting is named; data survive a crash."""

import asyncio
import socket
from pathlib import Path

import pytest

from rein.v1 import events_pb2 as ev
from rein_bus.errors import BusMisconfigured, BusTransient
from rein_bus.kafka import KafkaBus
from rein_bus.localbroker import LocalBroker, fetch_jars, free_ports
from rein_bus.preflight import preflight
from rein_bus.settings import KafkaSettings
from rein_contracts.topics import topic_of

POLICIES = topic_of(ev.PolicyPublished)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    jars = tmp_path / "libs"
    jars.mkdir()
    (jars / "kafka_2.13-4.3.1.jar").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = LocalBroker(tmp_path / "home", port=port, jars=jars)
        with pytest.raises(BusMisconfigured, match=rf"port {port} of 127\.0\.0\.1 is taken"):
            broker.start()
    assert broker.pid() is None


def test_without_its_jars_it_says_what_brings_them(tmp_path: Path) -> None:
    with pytest.raises(BusMisconfigured, match="make setup"):
        LocalBroker(tmp_path / "home", port=free_ports(1)[0], jars=tmp_path / "libs").start()


def test_without_java_it_says_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BusMisconfigured, match="apt-get install default-jre-headless"):
        LocalBroker(tmp_path / "home", port=free_ports(1)[0], jars=tmp_path).start()
    with pytest.raises(BusMisconfigured, match="apt-get install maven"):
        fetch_jars(pom=tmp_path / "pom.xml", into=tmp_path / "libs")


def test_stopping_what_does_not_run_is_nothing(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path, port=free_ports(1)[0], jars=tmp_path)
    (tmp_path / "broker.pid").write_text("1")  # somebody else's process by now
    assert broker.pid() is None
    broker.stop()
    assert not (tmp_path / "broker.pid").exists()


@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_an_open_bus_outlives_a_crash_of_the_broker_which_keeps_its_data(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    jars = pytestconfig.rootpath / "var" / "kafka" / "libs"
    fetch_jars(pom=pytestconfig.rootpath / "deploy" / "kafka" / "pom.xml", into=jars)
    port, controller_port = free_ports(2)
    broker = LocalBroker(tmp_path, port=port, controller_port=controller_port, jars=jars)
    settings = KafkaSettings(servers=broker.servers, request_timeout_s=10.0)
    broker.start()
    try:
        await preflight(settings, topics=[POLICIES])
        async with KafkaBus(settings) as bus, bus.work(ev.PolicyPublished, group="learner") as work:
            await bus.publish(ev.PolicyPublished(run="r", version=1))
            await work.done(await work.take())
            broker.kill()
            with pytest.raises(BusTransient, match=r"publish policy\.published"):
                await bus.publish(ev.PolicyPublished(run="r", version=2))
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(broker.start)  # runs already: nothing to do

            await bus.publish(ev.PolicyPublished(run="r", version=3))
            seen = 0
            while seen < 3:  # version 2 may have arrived after all
                message = (await work.take()).message
                assert isinstance(message, ev.PolicyPublished)
                assert message.version > 1
                seen = message.version
            found = await bus.newest(ev.PolicyPublished, key="r")
        assert found is not None
        assert found.message == ev.PolicyPublished(run="r", version=3)
    finally:
        LocalBroker(tmp_path, port=port, controller_port=controller_port, jars=jars).stop()
    assert broker.pid() is None
    broker.stop()
    assert broker.log_file.stat().st_size > 0
