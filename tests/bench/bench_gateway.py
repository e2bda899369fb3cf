"""What a recorded model call costs the gateway in CPU, against a bare pass-through proxy on the same server stack.

Both stand before stand-in engines that answer at once, the proxy's as a stream of tokens. The gateway is the real
process: it publishes every turn to a real broker and waits for its acknowledgement. The proxy passes the same requests
on, headers and all, streams the answer back, and reads nothing. The harness's side streams Anthropic messages in the
form of Claude Code's recorded requests; call 64 carries the whole history of the 63 before it. CPU is the process's
own, all threads, from the scheduler; medians of interleaved rounds. One JSON line per figure.
"""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientConnectionError, ClientSession, TCPConnector, web
from tokenizers import Tokenizer

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.kafka import KafkaBus
from rein_bus.localbroker import LocalBroker, fetch_jars, free_ports
from rein_bus.settings import KafkaSettings
from rein_contracts.grants import GRANT_HEADER, mint
from rein_dialects import anthropic
from rein_dialects.neutral import Answer, Request, Usage
from rein_dialects.sse import event
from rein_dialects.testing import make_policy
from rein_gateway.fake_engine import fake_engine

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "claude-code-2.1.197" / "request-1.json"
SECRET, RUN = "bench", "bench"
LIMITS = {1: 5.0, 64: 4.0}
#: Calls around the one of that number are measured, so that there are enough of them.
WINDOWS = {1: range(1, 2), 64: range(62, 67)}
NUM_ROUNDS, NUM_SESSIONS, NUM_AT_ONCE = 3, 24, 4
#: Tokens of one sample.
NUM_TOKENS = 40
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
SAID = 'I look first.\n<tool_call>\n{"name": "Bash", "arguments": {"command": "sed -n 10,40p src/a.py"}}\n</tool_call>'
RESULT = (
    "def area(width, height):\n    if width <= 0 or height < 0:\n        return None\n    return width * height\n" * 3
)


def main() -> None:
    if sys.argv[1:2] == ["proxy"]:
        asyncio.run(serve_proxy(int(sys.argv[2]), target=sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as servers:
        measured = asyncio.run(measure(Path(folder), KafkaSettings(servers=servers)))
    for number, (gateway_ms, proxy_ms) in measured.items():
        ratio = gateway_ms / proxy_ms
        figure = {
            "bench": "gateway",
            "metric": f"cpu_per_request_at_turn_{number}",
            "value": round(gateway_ms, 3),
            "unit": "ms",
            "baseline": round(proxy_ms, 3),
            "ratio": round(ratio, 2),
            "limit": LIMITS[number],
            "holds": ratio <= LIMITS[number],
        }
        print(json.dumps(figure), flush=True)


async def serve_proxy(port: int, *, target: str) -> None:
    """Pass method, path, headers and bodies on in both directions, answers as they come; read nothing."""
    async with ClientSession(connector=TCPConnector(limit=0), auto_decompress=False) as client:

        async def forward(request: web.Request) -> web.StreamResponse:
            async with client.request(
                request.method,
                target + request.path_qs,
                headers=passed(request.headers),
                data=await request.read(),
                allow_redirects=False,
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=passed(answer.headers))
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
                await response.write_eof()
                return response

        application = web.Application(client_max_size=2**25)
        application.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


def passed(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers that concern both ends."""
    return [(name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP]


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    jars = ROOT / "var" / "kafka" / "libs"
    fetch_jars(pom=ROOT / "deploy" / "kafka" / "pom.xml", into=jars)
    port, controller_port = free_ports(2)
    running = LocalBroker(folder / "kafka", port=port, controller_port=controller_port, jars=jars)
    running.start()
    try:
        yield running.servers
    finally:
        running.stop()


async def measure(folder: Path, kafka: KafkaSettings) -> dict[int, tuple[float, float]]:
    """CPU milliseconds per request at each number of turns: gateway, proxy."""
    # Trained on what it will read, so that a token has about as many characters as with a real tokenizer.
    model = make_policy(folder / "policy", corpus=[GOLDEN.read_text(), SAID, RESULT], vocab_size=1024)
    taken: dict[int, list[tuple[float, float]]] = {number: [] for number in LIMITS}
    async with (
        fake_engine() as engine,
        plain_engine() as plain,
        ClientSession(connector=TCPConnector(limit=0)) as client,
    ):
        engine.usual_ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(SAID + "<|im_end|>").ids
        engine.keeps_requests = False
        ports = free_ports(2)
        with (
            gateway_process(folder, port=ports[0], kafka=kafka, model=model) as gateway,
            proxy(ports[1], plain) as bare,
        ):
            urls = [f"http://127.0.0.1:{port}" for port in ports]
            for url, process in zip(urls, (gateway, bare), strict=True):
                await serving(client, url, process)
            await report_node(kafka, engine.url)
            for round_number in range(-1, NUM_ROUNDS):  # the first one warms up
                costs = await one_round(client, urls, (gateway, bare), round_number)
                if round_number >= 0:
                    for number, cost in costs.items():
                        taken[number].append(cost)
    return {
        number: (statistics.median(each[0] for each in costs), statistics.median(each[1] for each in costs))
        for number, costs in taken.items()
    }


async def one_round(
    client: ClientSession, urls: list[str], processes: tuple[subprocess.Popen[bytes], ...], round_number: int
) -> dict[int, tuple[float, float]]:
    """Fresh sessions go through all calls, before the gateway and before the proxy in turn."""
    sessions = [Session(f"{RUN}.g{round_number + 1}", member) for member in range(NUM_SESSIONS)]
    spent = {number: [0.0, 0.0] for number in LIMITS}
    for turn in range(1, max(WINDOWS[max(LIMITS)]) + 1):
        number = next((each for each, window in WINDOWS.items() if turn in window), None)
        for side, url in enumerate(urls):
            if side and number is None:
                continue
            before_s = cpu_s(processes[side].pid)
            replies = await all_call(client, url, sessions)
            if number is not None:
                spent[number][side] += cpu_s(processes[side].pid) - before_s
            if not side:
                heard = replies
        for session, reply in zip(sessions, heard, strict=True):
            session.hear(reply)
    per_call = {number: 1000 / (NUM_SESSIONS * len(WINDOWS[number])) for number in LIMITS}
    return {number: (cost[0] * per_call[number], cost[1] * per_call[number]) for number, cost in spent.items()}


async def all_call(client: ClientSession, url: str, sessions: list["Session"]) -> list[bytes]:
    free = asyncio.Semaphore(NUM_AT_ONCE)

    async def call(session: Session) -> bytes:
        async with (
            free,
            client.post(url + "/v1/messages?beta=true", data=session.body(), headers=session.headers) as reply,
        ):
            assert reply.status == 200, await reply.text()
            return await reply.read()

    return await asyncio.gather(*(call(session) for session in sessions))


@dataclass
class Session:
    """A harness's side of one attempt."""

    group: str
    member: int
    history: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(init=False)
    head: bytes = field(init=False)

    def __post_init__(self) -> None:
        now_s = time.time()
        grant = pb.AttemptGrant(
            identity=pb.Identity(run=RUN, task="t", group=self.group, member=self.member, attempt=1),
            purpose=pb.PURPOSE_TRAIN,
            sampling=pb.Sampling(temperature=1.0, max_tokens=256),
            expires_at_s=now_s + 3600,
            issued_at_s=now_s,
        )
        self.headers = {GRANT_HEADER: mint(grant, secret=SECRET.encode()), "content-type": "application/json"}
        body: dict[str, Any] = orjson.loads(GOLDEN.read_bytes())["body"]
        self.history = [orjson.dumps(message) for message in body.pop("messages")]
        self.head = orjson.dumps(body)[:-1] + b',"messages":['

    def body(self) -> bytes:
        return self.head + b",".join(self.history) + b"]}"

    def hear(self, stream: bytes) -> None:
        """The answer, and the result of its call."""
        events = [orjson.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: ")]
        blocks = [dict(each["content_block"]) for each in events if each["type"] == "content_block_start"]
        deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
        for block, delta in zip(blocks, deltas, strict=True):
            if block["type"] == "text":
                block["text"] = delta["text"]
            else:
                block["input"] = orjson.loads(delta["partial_json"])
        result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": RESULT, "is_error": False}
        self.history.append(orjson.dumps({"role": "assistant", "content": blocks}))
        self.history.append(orjson.dumps({"role": "user", "content": [result]}))


@asynccontextmanager
async def plain_engine() -> AsyncIterator[str]:
    """A stand-in that streams the same answer to everybody, a token at a time, as engines do."""
    answer = Answer("a", "I look first.", "", (), is_cut=False, usage=Usage(100, NUM_TOKENS))
    request = Request("m", ())
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    tokens = [event(delta, name="content_block_delta")] * NUM_TOKENS
    start = anthropic.stream_start(answer_id="a", model="m", prompt_tokens=100)
    events = [start, *tokens, *anthropic.stream_rest(answer, request=request)]

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for each in events:
            await response.write(each)
        await response.write_eof()
        return response

    application = web.Application(client_max_size=2**25)
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextmanager
def gateway_process(folder: Path, *, port: int, kafka: KafkaSettings, model: Path) -> Iterator[subprocess.Popen[bytes]]:
    config = folder / "gateway.toml"
    config.write_text(
        f'model = "{model}"\ngrant_secret = "{SECRET}"\nlog_level = "warning"\n'
        f'[http]\nport = {port}\n[kafka]\nservers = "{kafka.servers}"\n[blobs]\nurl = "{folder / "blobs"}"\n'
    )
    command = [str(Path(sys.executable).with_name("rein-gateway")), "--config", str(config)]
    with running(command) as process:
        yield process


@contextmanager
def proxy(port: int, target: str) -> Iterator[subprocess.Popen[bytes]]:
    with running([sys.executable, __file__, "proxy", str(port), target]) as process:
        yield process


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


async def serving(client: ClientSession, url: str, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        try:
            async with client.get(url + "/"):
                return
        except ClientConnectionError:
            await asyncio.sleep(0.1)


async def report_node(kafka: KafkaSettings, engine_url: str) -> None:
    ready = ev.NodeReported(
        node="n", run=RUN, state=ev.NODE_STATE_READY, version=1, engine_url=engine_url, interval_s=3600
    )
    async with KafkaBus(kafka) as bus:
        await bus.publish(ready)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, all threads, in nanoseconds' resolution."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


if __name__ == "__main__":
    main()
