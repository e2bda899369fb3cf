"""The page over real HTTP, from events on the memory bus."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_observer.adapters.page import Page
from rein_observer.adapters.web import served
from rein_observer.domain.alerts import Limits
from rein_observer.domain.board import Boards
from rein_observer.domain.windows import Window, empty
from rein_observer.errors import PagePortTaken
from rein_observer.service import Observer
from rein_service.clock import SystemClock
from rein_service.testing import eventually


class NoWindows:
    """As at a first start."""

    def recent(self) -> dict[str, list[tuple[str, Window]]]:
        return {"demo": [("12:00:00", empty())]}


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def url(broker: MemoryBroker) -> AsyncIterator[str]:
    boards, clock, draining = Boards(), SystemClock(), asyncio.Event()
    page = Page(boards=boards, windows=NoWindows(), clock=clock, interval_s=0.02)
    limits = Limits(absent_share=0.2, fork_rate=0.2, num_rollouts=4)
    observer = Observer(bus=MemoryBus(broker), boards=boards, limits=limits, clock=clock)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    async with served(page.app, host="127.0.0.1", port=port):
        watching = asyncio.create_task(observer.run(draining))
        yield f"http://127.0.0.1:{port}"
        draining.set()
        await watching


def running() -> ev.RunChanged:
    return ev.RunChanged(run="demo", state=ev.RUN_STATE_RUNNING, spec=ev.RunSpec(name="demo", steps=3))


async def test_an_open_page_is_updated_when_something_happens(broker: MemoryBroker, url: str) -> None:
    async with aiohttp.ClientSession() as client, client.get(url + "/events") as stream:
        assert "No run yet" in json.loads((await stream.content.readline())[6:])
        await MemoryBus(broker).publish(running())
        async with asyncio.timeout(30):
            while True:
                line = await stream.content.readline()
                if line.startswith(b"data: ") and "Run demo" in json.loads(line[6:]):
                    break


async def test_the_page_the_figures_and_the_curve_are_served(broker: MemoryBroker, url: str) -> None:
    await MemoryBus(broker).publish(running(), ev.PolicyPublished(run="demo", version=1))
    async with aiohttp.ClientSession() as client:

        async def figures() -> dict[str, dict[str, object]]:
            async with client.get(url + "/api/runs") as response:
                found: dict[str, dict[str, object]] = await response.json()
                return found

        async with asyncio.timeout(10):
            while (await figures()).get("demo", {}).get("version") != 1:
                pass
        async with client.get(url + "/") as page, client.get(url + "/runs/demo/curve.png") as curve:
            assert (await page.text()).count("<svg") == 4
            assert (await curve.read()).startswith(b"\x89PNG")
        async with client.get(url + "/runs/nobody/curve.png") as missing:
            assert missing.status == 404


async def test_what_an_agent_wrote_cannot_become_markup(broker: MemoryBroker, url: str) -> None:
    failure = pb.Failure(owner=pb.OWNER_HARNESS, code="<script>alert(1)</script>")
    graded = ev.RolloutGraded(identity=pb.Identity(run="demo", group="demo.g0", attempt=1), failure=failure)
    await MemoryBus(broker).publish(running(), graded)
    async with aiohttp.ClientSession() as client:
        async with asyncio.timeout(10):
            while True:
                async with client.get(url + "/") as page:
                    text = await page.text()
                if "alert(1)" in text:
                    break
        assert "<script>alert" not in text


async def test_alerts_are_published_once(broker: MemoryBroker, url: str) -> None:
    group = pb.Identity(run="demo", task="t", group="demo.g0")
    members = [ev.MemberOutcome(identity=group) for _ in range(5)]
    ended = ev.GroupAssembled(group=group, purpose=pb.PURPOSE_TRAIN, state=ev.GROUP_STATE_DROPPED, members=members)
    seen: list[str] = []

    async def read() -> None:
        async with MemoryBus(broker).follow(ev.AlertRaised) as follower:
            async for record in follower:
                assert isinstance(record.message, ev.AlertRaised)
                seen.append(record.message.code)

    reader = asyncio.create_task(read())
    await MemoryBus(broker).publish(running(), ended)
    await MemoryBus(broker).publish(ev.PolicyPublished(run="demo", version=1))
    await eventually(lambda: seen)
    await MemoryBus(broker).publish(ev.PolicyPublished(run="demo", version=2))
    reader.cancel()
    await asyncio.wait([reader])
    assert seen == ["rollouts.absent"]
    assert url


async def test_a_taken_port_is_named(url: str) -> None:
    port = int(url.rsplit(":", 1)[1])
    with pytest.raises(PagePortTaken, match=str(port)):
        async with served(lambda: None, host="127.0.0.1", port=port):
            pass
