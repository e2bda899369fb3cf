"""What a service opens, owns and shows. Handed to `build`; closed in reverse when the service ends.

Every task belongs to the scope: one that fails ends the service, and all are cancelled and awaited before resources
close. The scope decides nothing about signals or exit status (see `runtime`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rein_service.admin import AdminServer

T = TypeVar("T")
Loop = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """A service's own figures for Admin.GetStatus."""

    num_in_flight: int = 0
    details: Mapping[str, str] = field(default_factory=dict)


class Scope:
    """Resources, owned tasks and the stop signal of one service process."""

    def __init__(self, *, admin: AdminServer) -> None:
        self.draining = asyncio.Event()
        """Set by SIGTERM, SIGINT or Admin.Drain: take no more work, finish or hand back, return."""
        self.admin = admin
        self._report: Callable[[], Status] = Status
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stack = AsyncExitStack()

    async def enter(self, resource: AbstractAsyncContextManager[T]) -> T:
        """Open `resource` now; it closes when the service ends, after everything opened later."""
        return await self._stack.enter_async_context(resource)

    def spawn(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` as an owned task. It may return; if it raises, the service fails. Cancelling it is fine."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._settle)
        return task

    def status(self, report: Callable[[], Status]) -> None:
        """Let GetStatus ask `report`."""
        self._report = report

    def report(self) -> Status:
        return self._report()

    async def failed(self) -> None:
        """Return once an owned task has failed."""
        await asyncio.wait([self._failure])

    def raise_failure(self) -> None:
        """Raise what the first failed task raised, if one failed."""
        if self._failure.done():
            self._failure.result()

    async def close(self) -> None:
        """Cancel and await every owned task, then close resources in reverse."""
        while running := [task for task in self._tasks if not task.done()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
        if not self._failure.done():
            self._failure.cancel()
        await self._stack.aclose()

    def _settle(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("task.failed", extra={"task": task.get_name()}, exc_info=error)
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # seen: `failed` may not be waiting any more
