"""Server-sent events as bytes."""

import orjson


def event(data: object, *, name: str | None = None) -> bytes:
    """One event; `data` is serialised as JSON."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"
