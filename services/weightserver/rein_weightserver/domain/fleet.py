"""Two phases: a version is staged on every subscribed node of its run, then all switch together.

A run has a target (what its nodes should hold) and a current version (what they are told to serve). The target becomes
current once no node is still on its way to it and at least one holds it, or when there are no nodes at all. A node
not there by its deadline is left out, so nobody waits for it; it subscribes again and is then a late joiner: it
stages the current version alone and switches at once. A confirmation that is not about a node's present target says
nothing. Does not touch bytes, files or time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Weights:
    """A version and what names its bytes."""

    version: int
    digest: str


class Phase(Enum):
    """Where a node stands with its target."""

    WAITING = "waiting"
    SENDING = "sending"
    STAGED = "staged"
    SWITCHED = "switched"
    LIVE = "live"
    FAILED = "failed"
    LEFT_OUT = "left_out"


_ON_THE_WAY = frozenset({Phase.WAITING, Phase.SENDING})
_HOLDING = frozenset({Phase.STAGED, Phase.SWITCHED, Phase.LIVE})


@dataclass(eq=False, slots=True)
class Node:
    """One subscription. A node that subscribes again is another one."""

    name: str
    wants_run: str
    """"" = the run that published last."""
    have: Weights
    """What it serves already."""
    due_s: float
    phase: Phase = Phase.WAITING
    weights: Weights | None = None
    """Target it is handling; None = its run has none."""
    detail: str = ""


@dataclass(slots=True)
class Run:
    target: Weights | None = None
    current: Weights | None = None


@dataclass(frozen=True, slots=True)
class Send:
    weights: Weights
    with_chunks: bool
    """False = the node has the bytes: it only needs to hear of the version."""


@dataclass(frozen=True, slots=True)
class Switch:
    weights: Weights


@dataclass(frozen=True, slots=True)
class Leave:
    detail: str


Action = Send | Switch | Leave


class Fleet:
    """Runs, nodes, and what each node is to do next. `now_s` is any monotonic clock."""

    def __init__(self, *, stage_s: float) -> None:
        self._stage_s = stage_s
        self._runs: dict[str, Run] = {}
        self._nodes: list[Node] = []
        self.newest_run = ""

    def current(self, run: str) -> Weights | None:
        return self._runs.get(run, Run()).current

    def target(self, run: str) -> Weights | None:
        return self._runs.get(run, Run()).target

    def nodes(self, run: str) -> list[Node]:
        return [node for node in self._nodes if self.run_of(node) == run]

    def run_of(self, node: Node) -> str:
        return node.wants_run or self.newest_run

    def restore(self, run: str, weights: Weights) -> None:
        """What the run's nodes were told before a restart."""
        self._runs[run] = Run(target=weights, current=weights)

    def follow(self, run: str, *, now_s: float) -> None:
        """This run published last: nodes without a run of their own go over to it."""
        if run == self.newest_run:
            return
        self.newest_run = run
        for node in self._nodes:
            if not node.wants_run:
                self._aim(node, now_s=now_s)

    def retarget(self, run: str, weights: Weights, *, now_s: float) -> None:
        """Every node of the run is to hold `weights` from now on: a new version, or an older one again."""
        entry = self._runs.setdefault(run, Run())
        if entry.target == weights:
            return
        entry.target = weights
        for node in self.nodes(run):
            self._aim(node, now_s=now_s)
        self._settle(run)

    def join(self, name: str, *, wants_run: str, have: Weights, now_s: float) -> Node:
        """A subscription opens; an older one under the same name ends."""
        for other in self._nodes:
            if other.name == name:
                self._drop(other, detail="a newer subscription has its name")
        node = Node(name, wants_run, have, due_s=now_s + self._stage_s)
        self._nodes.append(node)
        self._aim(node, now_s=now_s)
        self._settle(self.run_of(node))
        return node

    def leave(self, node: Node) -> None:
        """The subscription ended, for whatever reason."""
        if node in self._nodes:
            self._nodes.remove(node)
            self._settle(self.run_of(node))

    def next_for(self, node: Node) -> Action | None:
        """What its stream should do now; None = wait for a change."""
        match node.phase:
            case Phase.LEFT_OUT:
                return Leave(node.detail)
            case Phase.WAITING if node.weights:
                node.phase = Phase.SENDING
                return Send(node.weights, with_chunks=node.weights != node.have)
            case Phase.STAGED if node.weights and node.weights == self.current(self.run_of(node)):
                node.phase = Phase.SWITCHED
                return Switch(node.weights)
            case _:
                return None

    def is_wanted(self, node: Node, weights: Weights) -> bool:
        """Whether it still makes sense to send `weights`."""
        return node.phase is Phase.SENDING and node.weights == weights

    def staged(self, name: str, weights: Weights) -> None:
        if (node := self._handling(name, weights)) and node.phase is Phase.SENDING:
            node.phase = Phase.STAGED
            self._settle(self.run_of(node))

    def live(self, name: str, weights: Weights) -> None:
        if (node := self._handling(name, weights)) and node.phase is Phase.SWITCHED:
            node.phase, node.have = Phase.LIVE, weights

    def failed(self, name: str, weights: Weights, *, detail: str) -> None:
        """It will not serve `weights`; nobody waits for it."""
        if (node := self._handling(name, weights)) and node.phase is not Phase.LEFT_OUT:
            node.phase, node.detail = Phase.FAILED, detail
            self._settle(self.run_of(node))

    def expire(self, *, now_s: float) -> list[Node]:
        """Leave out whoever is late; returns them."""
        late = [node for node in self._nodes if node.weights and node.phase in _ON_THE_WAY and now_s >= node.due_s]
        for node in late:
            self._drop(
                node, detail=f"version {node.weights and node.weights.version} was not staged in {self._stage_s} s"
            )
        return late

    def _aim(self, node: Node, *, now_s: float) -> None:
        node.weights = self.target(self.run_of(node))
        node.phase, node.detail, node.due_s = Phase.WAITING, "", now_s + self._stage_s

    def _drop(self, node: Node, *, detail: str) -> None:
        node.phase, node.detail = Phase.LEFT_OUT, detail
        self._settle(self.run_of(node))

    def _handling(self, name: str, weights: Weights) -> Node | None:
        return next(self._matching(name, weights), None)

    def _matching(self, name: str, weights: Weights) -> Iterator[Node]:
        return (
            node
            for node in self._nodes
            if node.name == name and node.weights == weights and node.phase is not Phase.LEFT_OUT
        )

    def _settle(self, run: str) -> None:
        entry = self._runs.get(run)
        if entry is None or entry.target == entry.current:
            return
        phases = [node.phase for node in self.nodes(run)]
        if _ON_THE_WAY.isdisjoint(phases) and (not phases or not _HOLDING.isdisjoint(phases)):
            entry.current = entry.target
