"""A stand-in for gateway and model: answers from a script of shell commands and keeps what it was sent.

For tests of harnesses and runners. It samples nothing, knows no tokens, and speaks only as much HTTP/1.1 as harnesses
and the pipe do.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """Parsed JSON; None without a body."""


@dataclass(slots=True)
class StandIn:
    """`script` holds the commands the model runs, one a call; after them it says it is done."""

    script: Sequence[str]
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    status: int = 200
    """Status of model calls; anything but 200 is an error to the harness."""
    silent: bool = False
    """Never answer."""

    @property
    def num_turns(self) -> int:
        return sum(is_model_call(each) for each in self.seen) if self.status == 200 else 0

    def answer(self, request: Seen) -> tuple[int, str, bytes]:
        """Status, content type, body."""
        if request.path == "/rein/v1/attempts/end":
            return 200, "application/json", json.dumps({"num_turns": self.num_turns, "limit": None}).encode()
        if not is_model_call(request):
            return 200, "application/json", b"{}"
        if self.status != 200:
            return (
                self.status,
                "application/json",
                b'{"type":"error","error":{"type":"api_error","message":"scripted"}}',
            )
        number = self.num_turns
        command = self.script[number - 1] if number <= len(self.script) else ""
        if "/v1/messages" in request.path:
            return 200, "text/event-stream", _anthropic_stream(command, number=number)
        return 200, "application/json", json.dumps(_chat(command, number=number)).encode()


def is_model_call(request: Seen) -> bool:
    return request.method == "POST" and request.path.split("?")[0] in {"/v1/messages", "/v1/chat/completions"}


@asynccontextmanager
async def stand_in(script: Sequence[str] = (), *, port: int = 0) -> AsyncIterator[StandIn]:
    """Serve on 127.0.0.1 until the block ends; every connection is cut then."""
    serving = StandIn(script)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await _connection(serving, reader, writer)
        tasks.discard(task)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    serving.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield serving
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await server.wait_closed()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connection(serving: StandIn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Seen(method=method, path=path, headers=headers, body=json.loads(raw) if raw else None)
        serving.seen.append(request)
        if serving.silent:
            await asyncio.Event().wait()
        status, kind, body = serving.answer(request)
        content = b"" if method == "HEAD" else body
        writer.write(
            f"HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
        )
        await writer.drain()
        if headers.get("connection", "").lower() == "close":
            return


def _chat(command: str, *, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if command else "Done."}
    if command:
        call = {"name": "bash", "arguments": json.dumps({"command": command})}
        message["tool_calls"] = [{"id": f"call_{number:04d}", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if command else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {
        "id": f"chat_{number}",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [choice],
        "usage": usage,
    }


def _anthropic_stream(command: str, *, number: int) -> bytes:
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "Done."}
    if command:
        block = {"type": "tool_use", "id": f"toolu_{number:04d}", "name": "Bash", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"command": command})}
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "policy",
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    stop = {"stop_reason": "tool_use" if command else "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
