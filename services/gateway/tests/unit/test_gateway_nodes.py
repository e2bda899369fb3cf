"""Which node a call goes to."""

from collections import Counter

from rein.v1 import events_pb2 as ev
from rein_gateway.domain.nodes import Nodes


def report(
    name: str, *, version: int = 1, state: "ev.NodeState.ValueType" = ev.NODE_STATE_READY, run: str = "r"
) -> ev.NodeReported:
    url = f"http://{name}/"
    return ev.NodeReported(node=name, run=run, state=state, version=version, engine_url=url, interval_s=2.0)


def nodes_of(*names: str) -> Nodes:
    nodes = Nodes(spill_calls=3)
    for name in names:
        nodes.report(report(name), now_s=0.0)
    return nodes


def chosen(nodes: Nodes, attempt: str, *, now_s: float = 1.0, run: str = "r") -> str | None:
    node = nodes.choose(run=run, attempt=attempt, now_s=now_s)
    return node.name if node else None


def test_only_ready_nodes_of_the_run_with_confirmed_weights_serve() -> None:
    nodes = nodes_of("good")
    nodes.report(report("fenced", state=ev.NODE_STATE_FENCED), now_s=0.0)
    nodes.report(report("base", version=0), now_s=0.0)
    nodes.report(report("other", run="other"), now_s=0.0)
    assert {chosen(nodes, f"attempt {number}") for number in range(50)} == {"good"}
    assert chosen(nodes, "x", run="none") is None


def test_a_node_is_gone_after_three_silent_intervals_and_back_with_its_next_report() -> None:
    nodes = nodes_of("a")
    assert chosen(nodes, "x", now_s=6.0) == "a"
    assert chosen(nodes, "x", now_s=6.1) is None
    nodes.report(report("a", version=2), now_s=9.0)
    node = nodes.choose(run="r", attempt="x", now_s=9.0)
    assert node is not None
    assert (node.version, node.url) == (2, "http://a")


def test_attempts_spread_and_keep_to_their_node_when_another_comes_or_goes() -> None:
    names = ["a", "b", "c"]
    attempts = [f"r.g{number}/0#1" for number in range(300)]
    three = {attempt: chosen(nodes_of(*names), attempt) for attempt in attempts}
    assert min(Counter(three.values()).values()) > 50
    two = {attempt: chosen(nodes_of("a", "b"), attempt) for attempt in attempts}
    assert all(two[attempt] == home for attempt, home in three.items() if home != "c")


def test_an_attempt_leaves_a_crowded_node_and_returns() -> None:
    nodes = nodes_of("a", "b")
    home = chosen(nodes, "x")
    assert home is not None
    for _ in range(3):
        nodes.begin(home)
    assert chosen(nodes, "x") not in (home, None)
    nodes.end(home)
    assert chosen(nodes, "x") == home


def test_a_node_that_failed_a_call_is_not_asked_again_for_it() -> None:
    nodes = nodes_of("a", "b")
    home = chosen(nodes, "x")
    assert home is not None
    other = nodes.choose(run="r", attempt="x", now_s=1.0, without={home})
    assert other is not None
    assert other.name != home
    assert nodes.choose(run="r", attempt="x", now_s=1.0, without={"a", "b"}) is None


def test_calls_are_counted_across_reports() -> None:
    nodes = nodes_of("a")
    nodes.begin("a")
    nodes.report(report("a", version=2), now_s=1.0)
    assert nodes.states(now_s=1.0) == {"a": "ready, version 2, 1 calls"}
    assert nodes.states(now_s=99.0) == {"a": "silent, version 2, 1 calls"}
