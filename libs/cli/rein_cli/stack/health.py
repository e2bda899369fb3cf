"""Waiting for processes to serve. A process that ends instead says why in its log; that line becomes the error."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rein_cli.errors import CannotDo
from rein_cli.rpc import is_serving
from rein_cli.stack.home import Home
from rein_cli.stack.processes import error_line

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Starting:
    """A process that was started and has to become healthy."""

    name: str
    service: str
    address: str
    process: subprocess.Popen[bytes]


async def all_serving(
    home: Home, starting: Mapping[str, Starting], *, within_s: float, said: Callable[[str], None]
) -> None:
    """Return when all serve; `said` hears of each. Raises CannotDo for the first that ends or is too late."""
    began_s, waiting = time.monotonic(), dict(starting)
    while waiting:
        for name, part in list(waiting.items()):
            if (status := part.process.poll()) is not None:
                raise CannotDo(
                    "stack.not_started",
                    f"{name} ended with status {status}: {error_line(home.log(name), service=part.service)} "
                    f"(log: {home.log(name)})",
                )
            if await is_serving(part.address):
                said(f"{name} serves ({time.monotonic() - began_s:.1f} s)")
                del waiting[name]
        if waiting and time.monotonic() - began_s > within_s:
            name = next(iter(waiting))
            raise CannotDo(
                "stack.too_slow", f"{name} does not serve after {within_s:.0f} s; its log may say why: {home.log(name)}"
            )
        await asyncio.sleep(POLL_S if waiting else 0)
