"""Which processes a local stack has, on which ports, in which order. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rein_bus.settings import KafkaSettings
from rein_cli.stack.home import Home

#: Order of start; `rein down` goes the other way. The dispatcher comes last: it is what begins work.
SERVICES = (
    "weightserver",
    "inference",
    "gateway",
    "grader",
    "assembler",
    "learner",
    "runner",
    "observer",
    "dispatcher",
)

MAX_NODES = 10


@dataclass(frozen=True, slots=True)
class Ports:
    """The usual ports, all shifted by one number so that several stacks fit on one machine."""

    offset: int = 0

    @property
    def broker(self) -> int:
        return 9592 + self.offset

    @property
    def controller(self) -> int:
        return 9593 + self.offset

    @property
    def gateway(self) -> int:
        return 9700 + self.offset

    @property
    def weightserver(self) -> int:
        return 9720 + self.offset

    @property
    def page(self) -> int:
        return 9750 + self.offset

    def engine(self, node: int) -> int:
        return 9710 + node + self.offset

    def admin(self, service: str, *, node: int = 0) -> int:
        if service == "dispatcher":
            return 9721 + self.offset
        if service == "inference":
            return 9760 + node + self.offset
        return 9730 + SERVICES.index(service) + self.offset

    def metrics(self, service: str, *, node: int = 0) -> int:
        return (9770 + node if service == "inference" else 9740 + SERVICES.index(service)) + self.offset


@dataclass(frozen=True, slots=True)
class Part:
    """One service process of the stack."""

    name: str
    """Unique in the stack: the service's name, with a number where there are several."""
    service: str
    node: int = 0
    """Counts the processes of one service from 0."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything `rein up` was asked for."""

    home: Home
    kafka: KafkaSettings
    owns_broker: bool
    model: Path
    installed: Path
    """Where `make setup` put Kafka, harnesses and the sandboxes' base root."""
    context_tokens: int = 8192
    """Longest prompt plus answer an engine takes."""
    num_nodes: int = 1
    ports: Ports = field(default_factory=Ports)

    def parts(self) -> list[Part]:
        """Every service process, in order of start."""
        return [part for service in SERVICES for part in self._parts_of(service)]

    def _parts_of(self, service: str) -> Iterator[Part]:
        if service != "inference":
            yield Part(service, service)
            return
        for node in range(self.num_nodes):
            yield Part(f"inference-{node}", service, node)

    def admin_address(self, part: Part) -> str:
        return f"127.0.0.1:{self.ports.admin(part.service, node=part.node)}"

    def listening(self) -> list[tuple[str, int]]:
        """What needs which port."""
        wanted = [("the broker", self.ports.broker), ("the controller", self.ports.controller)] * self.owns_broker
        wanted += [("the gateway", self.ports.gateway), ("the page", self.ports.page)]
        for part in self.parts():
            wanted.append((f"{part.name}'s admin", self.ports.admin(part.service, node=part.node)))
            wanted.append((f"{part.name}'s metrics", self.ports.metrics(part.service, node=part.node)))
        wanted += [(f"engine {node}", self.ports.engine(node)) for node in range(self.num_nodes)]
        return wanted
