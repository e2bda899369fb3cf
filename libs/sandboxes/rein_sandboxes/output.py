"""Reading what a sandbox writes, without ever keeping more than was agreed."""

import asyncio
import os
from collections.abc import Callable

CHUNK_BYTES = 1 << 16


class OutputReader:
    """Reads one pipe on the event loop until its end. Keeps the newest bytes; says once when there are too many."""

    def __init__(
        self, descriptor: int, *, kept_bytes: int, most_bytes: int | None, on_flood: Callable[[], None]
    ) -> None:
        self._descriptor = descriptor
        self._kept_bytes = kept_bytes
        self._most_bytes = most_bytes
        self._on_flood = on_flood
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._head = self._loop.create_future()
        self.num_bytes = 0
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    async def head(self, num_bytes: int) -> bytes:
        """Take the first `num_bytes` off; fewer when the output ends before."""
        while len(self._kept) < num_bytes and not self._ended.done():
            await asyncio.wait([self._head, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if self._head.done():
                self._head = self._loop.create_future()
        head = bytes(self._kept[:num_bytes])
        del self._kept[:num_bytes]
        self.num_bytes -= len(head)
        return head

    async def ended(self) -> None:
        """Every writer is gone."""
        await asyncio.shield(self._ended)

    def kept(self) -> bytes:
        return bytes(self._kept[-self._kept_bytes :]) if self._kept_bytes else b""

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self._ended.done():
            self._ended.set_result(None)

    def _read(self) -> None:
        try:
            chunk = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        self.num_bytes += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._kept_bytes + CHUNK_BYTES:
            del self._kept[: -self._kept_bytes or None]
        if not self._head.done():
            self._head.set_result(None)
        if self._most_bytes is not None and self.num_bytes > self._most_bytes:
            self._most_bytes = None
            self._on_flood()
