"""The plan of a stack: ports never meet, whatever the offset and the number of nodes."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rein_bus.settings import KafkaSettings
from rein_cli.stack.home import Home
from rein_cli.stack.plan import MAX_NODES, SERVICES, Plan, Ports


def plan(*, num_nodes: int = 1, offset: int = 0, owns_broker: bool = True) -> Plan:
    return Plan(
        home=Home(Path("/h")),
        kafka=KafkaSettings(),
        owns_broker=owns_broker,
        model=Path("/m"),
        installed=Path("/v"),
        num_nodes=num_nodes,
        ports=Ports(offset),
    )


@settings(max_examples=30, deadline=None)
@given(num_nodes=st.integers(1, MAX_NODES), offset=st.integers(0, 20_000))
def test_no_two_listeners_share_a_port(num_nodes: int, offset: int) -> None:
    ports = [port for _, port in plan(num_nodes=num_nodes, offset=offset).listening()]
    assert len(ports) == len(set(ports))


def test_every_service_is_started_once_and_the_dispatcher_last() -> None:
    parts = plan(num_nodes=3).parts()
    assert [part.service for part in parts if part.service != "inference"] == [s for s in SERVICES if s != "inference"]
    assert [part.name for part in parts if part.service == "inference"] == ["inference-0", "inference-1", "inference-2"]
    assert parts[-1].name == "dispatcher"


def test_an_existing_cluster_needs_no_broker_ports() -> None:
    names = {name for name, _ in plan(owns_broker=False).listening()}
    assert not names & {"the broker", "the controller"}
