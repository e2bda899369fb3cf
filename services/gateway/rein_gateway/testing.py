"""A gateway over real HTTP for tests and benchmarks: memory bus, stand-in engine, toy model folder.

Everything between the harness's bytes and the engine's is the real thing.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import orjson
from aiohttp import ClientSession
from google.protobuf.message import Message
from tokenizers import Tokenizer

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.memory import MemoryBus
from rein_bus.memory_broker import MemoryBroker
from rein_contracts.grants import GRANT_HEADER, mint
from rein_contracts.topics import topic_of
from rein_gateway.adapters.engine import open_engine
from rein_gateway.adapters.http import Desk, HttpListener, open_listener
from rein_gateway.config import GatewayConfig
from rein_gateway.fake_engine import FakeEngine, fake_engine
from rein_gateway.service import Gateway
from rein_gateway.wiring import Core, Outside, core_of
from rein_service import Status
from rein_service.clock import Clock, SystemClock
from rein_service.testing import eventually

SECRET = "for tests only"
RUN, GROUP, NODE = "r", "r.g0", "node-0"

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a harness got."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Data of the server-sent events, but for the mark that ends a chat stream."""
        lines = (line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: "))
        return [orjson.loads(line) for line in lines if line != b"[DONE]"]


@dataclass(eq=False, slots=True)
class Stage:
    """One running gateway, and everything around it that a test may turn a screw on."""

    core: Core
    gateway: Gateway
    listener: HttpListener
    engine: FakeEngine
    broker: MemoryBroker
    bus: MemoryBus
    clock: Clock
    client: ClientSession
    url: str
    tokenizer: Tokenizer
    draining: asyncio.Event
    blobs: "MemoryBlobs"

    def grant(
        self, *, member: int = 0, attempt: int = 1, temperature: float = 1.0, age_s: float = 0.0, **limits: int
    ) -> str:
        """Minted, and good for an hour; `age_s` = how long before now."""
        now_s = self.clock.now().timestamp()
        grant = pb.AttemptGrant(
            identity=pb.Identity(run=RUN, task="t", group=GROUP, member=member, attempt=attempt),
            purpose=pb.PURPOSE_TRAIN,
            sampling=pb.Sampling(temperature=temperature, max_tokens=512),
            limits=pb.Limits(**limits),
            harness="test",
            issued_at_s=now_s - age_s,
            expires_at_s=now_s + 3600,
        )
        return mint(grant, secret=SECRET.encode())

    async def post(self, path: str, body: Any, *, grant: str | None = None, **headers: str) -> Reply:
        """Headers' names are written with underscores; grant "" sends none."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.grant() if grant is None else grant
        if token:
            named[GRANT_HEADER] = token
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.client.post(self.url + path, data=data, headers=named) as response:
            content = await response.read()
            return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, content)

    async def end(self, *, grant: str | None = None) -> Reply:
        return await self.post("/rein/v1/attempts/end", {}, grant=grant)

    def status(self) -> Status:
        return self.gateway.status()

    @property
    def is_finishing(self) -> bool:
        return self.listener.is_finishing

    def say(self, *texts: str, ended: bool = True) -> None:
        """Script the engine; a sample that is not `ended` ran into its length limit."""
        for text in texts:
            ids = self.ids(text + "<|im_end|>" * ended)
            self.engine.say(ids, finish_reason="stop" if ended else "length")

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def log(self, message: type[M]) -> list[M]:
        """Everything in that message's topic; one group's events are in order."""
        partitions = topic_of(message).partitions
        return [
            message.FromString(stored.value)
            for partition in range(partitions)
            for stored in self.broker.read((message, partition))
        ]

    def codes(self) -> list[str]:
        return [finding.code for finding in self.log(ev.FindingRecorded)]

    async def report(self, *, version: int = 1, node: str = NODE, **changes: Any) -> None:
        """A node says how it is, and the gateway has heard it."""
        usual = {"state": ev.NODE_STATE_READY, "engine_url": self.engine.url, "interval_s": 60.0, "run": RUN}
        await self.bus.publish(ev.NodeReported(node=node, version=version, **{**usual, **changes}))
        said = f"version {version},"
        await eventually(lambda: said in self.core.nodes.states(now_s=self.clock.monotonic()).get(node, ""))


@asynccontextmanager
async def open_stage(
    folder: Path,
    *,
    clock: Clock | None = None,
    settings: Mapping[str, Any] | None = None,
    broker: MemoryBroker | None = None,
) -> AsyncIterator[Stage]:
    """A gateway over the model in `folder` with one ready node; `settings` are keys of its configuration.

    `broker` may be another stage's: then this gateway comes after that one.
    """
    http = {"port": 0, "stream_patience_s": 0.15, "ping_s": 0.05, **(settings or {}).get("http", {})}
    usual = {"model": folder, "grant_secret": SECRET, "bus_patience_s": 0.2, "node_patience_s": 0.2, "instance": "gw"}
    config = GatewayConfig.model_validate({**usual, **(settings or {}), "http": http})
    broker, blobs, clock = broker or MemoryBroker(), MemoryBlobs(), clock or SystemClock()
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(MemoryBus(broker))
        engine = await stack.enter_async_context(fake_engine())
        client = await stack.enter_async_context(open_engine(patience_s=config.engine_patience_s))
        core = core_of(config, Outside(bus, blobs, client, clock))
        desk = Desk.of(core, config, clock=clock)
        listener = await stack.enter_async_context(open_listener(desk, settings=config.http))
        gateway = Gateway(bus=bus, core=core, listener=listener, clock=clock)
        draining = asyncio.Event()
        running = asyncio.create_task(gateway.run(draining))
        harness = await stack.enter_async_context(ClientSession())
        url = f"http://127.0.0.1:{listener.port}"
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        stage = Stage(core, gateway, listener, engine, broker, bus, clock, harness, url, tokenizer, draining, blobs)
        await stage.report()
        try:
            yield stage
        finally:
            draining.set()
            await running


class MemoryBlobs:
    """A blob store that lasts as long as the test."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    async def put(self, data: bytes) -> pb.BlobRef:
        digest = sha256(data).hexdigest()
        self.stored[digest] = data
        return pb.BlobRef(sha256=digest, size_bytes=len(data))
