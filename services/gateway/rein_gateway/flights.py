"""One model call under way, shared by everyone who waits for it.

A client's marked retry joins the call or gets its finished answer; when the last one who waits has gone, the call is
given up, which ends the generation.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from rein_dialects.neutral import Answer
from rein_gateway import metrics
from rein_gateway.errors import CallRefused

#: What makes two requests the same: digest of the canonical history, and how many tokens were asked for.
FlightKey = tuple[bytes, int | None]


class Flight:
    """What the answer begins with is known before it is started."""

    task: asyncio.Task[Answer]

    def __init__(self, key: FlightKey, *, answer_id: str, num_prompt_tokens: int) -> None:
        self.key = key
        self.answer_id = answer_id
        self.num_prompt_tokens = num_prompt_tokens
        self.is_generating = False
        """A node has taken the prompt."""
        self._num_waiting = 0

    def start(self, work: Coroutine[Any, Any, Answer]) -> None:
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(_look_at)

    def note_generating(self) -> None:
        self.is_generating = True

    def may_be_joined(self) -> bool:
        """It has an answer, or may get one."""
        if self.task.done():
            return not self.task.cancelled() and self.task.exception() is None
        return self.task.cancelling() == 0

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Somebody waits for it inside this block."""
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1
            if self._num_waiting == 0 and not self.task.done():
                metrics.CALLS_ABORTED.inc()
                self.task.cancel()

    async def is_over_within(self, seconds: float) -> bool:
        """Raises nothing of the call's own."""
        await asyncio.wait([self.task], timeout=seconds)
        return self.task.done()

    async def answer(self) -> Answer:
        """Raises what the call raises; CallRefused when it was given up because its attempt is over."""
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if self.task.cancelled():
                raise CallRefused("attempt.over", "this attempt is over", status=HTTPStatus.FORBIDDEN) from None
            raise


def _look_at(task: asyncio.Task[Answer]) -> None:
    """Whoever waited was told; with nobody left to tell, an error is no news."""
    if not task.cancelled():
        task.exception()
