"""Two phases, as pure decisions."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rein_weightserver.domain.fleet import Fleet, Leave, Node, Phase, Send, Switch, Weights

NOTHING = Weights(0, "")
V1, V2 = Weights(1, "one"), Weights(2, "two")
STAGE_S = 10.0


def fleet_with(*names: str, target: Weights | None = None) -> tuple[Fleet, list[Node]]:
    fleet = Fleet(stage_s=STAGE_S)
    fleet.follow("run", now_s=0.0)
    nodes = [join(fleet, name) for name in names]
    if target:
        fleet.retarget("run", target, now_s=0.0)
    return fleet, nodes


def join(fleet: Fleet, name: str, *, have: Weights = NOTHING, run: str = "", now_s: float = 0.0) -> Node:
    return fleet.join(name, wants_run=run, have=have, now_s=now_s)


def stage(fleet: Fleet, *nodes: Node) -> None:
    for node in nodes:
        action = fleet.next_for(node)
        assert isinstance(action, Send)
        fleet.staged(node.name, action.weights)


def test_nobody_switches_before_everybody_holds_the_version() -> None:
    fleet, (a, b) = fleet_with("a", "b", target=V1)
    stage(fleet, a)
    assert fleet.next_for(a) is None
    assert fleet.current("run") is None
    stage(fleet, b)
    assert [fleet.next_for(a), fleet.next_for(b)] == [Switch(V1), Switch(V1)]
    assert fleet.current("run") == V1


def test_a_late_joiner_is_seeded_and_switches_at_once() -> None:
    fleet, _ = fleet_with(target=V1)
    late = join(fleet, "late")
    stage(fleet, late)
    assert fleet.next_for(late) == Switch(V1)


def test_a_slow_node_is_left_out_and_the_others_go_on() -> None:
    fleet, (fast, slow) = fleet_with("fast", "slow", target=V1)
    stage(fleet, fast)
    assert fleet.next_for(slow) == Send(V1, with_chunks=True)
    assert fleet.expire(now_s=STAGE_S - 0.1) == []
    assert fleet.expire(now_s=STAGE_S) == [slow]
    assert fleet.next_for(fast) == Switch(V1)
    assert isinstance(fleet.next_for(slow), Leave)
    fleet.staged("slow", V1)
    assert slow.phase is Phase.LEFT_OUT


def test_a_node_that_leaves_is_no_longer_waited_for() -> None:
    fleet, (a, b) = fleet_with("a", "b", target=V1)
    stage(fleet, a)
    fleet.leave(b)
    assert fleet.next_for(a) == Switch(V1)


def test_a_node_that_failed_is_not_waited_for_and_not_asked_again() -> None:
    fleet, (a, b) = fleet_with("a", "b", target=V1)
    stage(fleet, a)
    fleet.next_for(b)
    fleet.failed("b", V1, detail="no room")
    assert fleet.next_for(a) == Switch(V1)
    assert fleet.next_for(b) is None


def test_a_version_that_failed_everywhere_never_becomes_current() -> None:
    fleet, (a,) = fleet_with("a", target=V1)
    fleet.next_for(a)
    fleet.failed("a", V1, detail="bad")
    assert fleet.current("run") is None


def test_a_newer_version_overtakes_one_under_way() -> None:
    fleet, (a,) = fleet_with("a", target=V1)
    fleet.next_for(a)
    fleet.retarget("run", V2, now_s=1.0)
    assert not fleet.is_wanted(a, V1)
    fleet.staged("a", V1)
    stage(fleet, a)
    assert fleet.next_for(a) == Switch(V2)


def test_a_node_that_has_the_version_is_told_of_it_without_bytes() -> None:
    fleet, _ = fleet_with(target=V1)
    node = join(fleet, "a", have=V1)
    assert fleet.next_for(node) == Send(V1, with_chunks=False)


def test_nodes_without_a_run_go_over_to_the_one_that_published_last() -> None:
    fleet, (free,) = fleet_with("free", target=V1)
    bound = join(fleet, "bound", run="run")
    fleet.follow("other", now_s=1.0)
    fleet.retarget("other", V2, now_s=1.0)
    assert fleet.next_for(free) == Send(V2, with_chunks=True)
    assert fleet.next_for(bound) == Send(V1, with_chunks=True)


def test_a_second_subscription_ends_the_first() -> None:
    fleet, (old,) = fleet_with("a", target=V1)
    new = join(fleet, "a")
    assert isinstance(fleet.next_for(old), Leave)
    stage(fleet, new)
    assert new.phase is Phase.STAGED


class AnyOrder(RuleBasedStateMachine):
    """Whatever nodes and learners do in whatever order, the two phases hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(stage_s=STAGE_S)
        self.fleet.follow("run", now_s=0.0)
        self.now_s = 0.0
        self.nodes: list[Node] = []
        self.holds: dict[Node, Weights] = {}
        self.version = 0

    @rule()
    def publish(self) -> None:
        self.version += 1
        self.fleet.retarget("run", Weights(self.version, f"d{self.version}"), now_s=self.now_s)

    @precondition(lambda self: self.version > 1)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(min_value=1, max_value=self.version))
        self.fleet.retarget("run", Weights(version, f"d{version}"), now_s=self.now_s)

    @rule(name=st.sampled_from("abc"))
    def subscribe(self, name: str) -> None:
        self.nodes.append(join(self.fleet, name, now_s=self.now_s))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.nodes))
        match self.fleet.next_for(node):
            case Send(weights):
                self.holds[node] = weights
            case Switch(weights):
                assert self.holds[node] == weights == self.fleet.current("run")
            case Leave():
                self.nodes.remove(node)
                self.fleet.leave(node)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), state=st.sampled_from(["staged", "live", "failed"]))
    def confirm(self, data: st.DataObject, state: str) -> None:
        node = data.draw(st.sampled_from(list(self.holds)))
        match state:
            case "staged":
                self.fleet.staged(node.name, self.holds[node])
            case "live":
                self.fleet.live(node.name, self.holds[node])
            case "failed":
                self.fleet.failed(node.name, self.holds[node], detail="")

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.nodes))
        self.nodes.remove(node)
        self.fleet.leave(node)

    @rule(seconds=st.floats(min_value=0, max_value=STAGE_S))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.fleet.expire(now_s=self.now_s)

    @invariant()
    def nobody_waits_longer_than_the_deadline(self) -> None:
        self.fleet.expire(now_s=self.now_s)
        waiting = [node for node in self.fleet.nodes("run") if node.phase in {Phase.WAITING, Phase.SENDING}]
        assert all(node.weights is None or self.now_s < node.due_s for node in waiting)
        if not self.fleet.nodes("run"):
            assert self.fleet.current("run") == self.fleet.target("run")

    @invariant()
    def only_nodes_with_the_current_version_are_switched(self) -> None:
        for node in self.fleet.nodes("run"):
            if node.phase in {Phase.SWITCHED, Phase.LIVE}:
                assert node.weights == self.fleet.current("run")


AnyOrder.TestCase.settings = settings(deadline=None, max_examples=60)
test_any_order_of_events_keeps_the_two_phases = AnyOrder.TestCase
