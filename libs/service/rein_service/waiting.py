"""Waiting for one thing or the end of work, whichever comes first."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unless(stop: asyncio.Event, awaitable: Coroutine[Any, Any, T]) -> T | None:
    """Its result; None when `stop` was set first (it is cancelled then). Raises what it raises."""
    wanted = asyncio.ensure_future(awaitable)
    waiting: list[asyncio.Future[Any]] = [wanted, asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
    return None if wanted.cancelled() else wanted.result()
