"""Waiting out a store that is away, for those whose work cannot go on without it. Bounded: then the error is theirs."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rein_blobs.errors import BlobUnavailable

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)

T = TypeVar("T")

log = logging.getLogger(__name__)


async def patiently(ask: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]]) -> T:
    """What `ask` gives, asked again after each of `PAUSES_S`. Raises BlobUnavailable after the last."""
    for pause_s in PAUSES_S:
        try:
            return await ask()
        except BlobUnavailable as error:
            log.warning("blobs.retried", extra={"pause_s": pause_s, "reason": error.detail})
            await sleep(pause_s)
    return await ask()
