"""For tests of services: waiting for something to become true without sleeping a guessed time."""

import asyncio
import time
from collections.abc import Callable


async def eventually(is_true: Callable[[], object], *, within_s: float = 5.0) -> None:
    """Return once `is_true()` is truthy. Raises AssertionError after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not is_true():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {within_s} s: {is_true}")
        await asyncio.sleep(0.01)
