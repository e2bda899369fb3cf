"""A service whose behaviour is a setting; the life-cycle tests start it as a process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from rein_service import Loop, Scope, ServiceConfig, SetupError, Status, run_service


class Config(ServiceConfig):
    """What to do."""

    act: Literal["work", "connect", "refuse", "crash", "return", "crash_task", "overrun"] = "work"
    """How it behaves."""


@asynccontextmanager
async def resource(name: str) -> AsyncIterator[None]:
    print(f"opened {name}", flush=True)
    try:
        yield
    finally:
        print(f"closed {name}", flush=True)


async def build(config: Config, scope: Scope) -> Loop:
    await scope.enter(resource("first"))
    await scope.enter(resource("second"))
    scope.status(lambda: Status(num_in_flight=3, details={"colour": "green"}))
    if config.act == "connect":
        print("connecting", flush=True)
        await asyncio.Event().wait()
    if config.act == "refuse":
        raise SetupError("model.missing", "model folder /nowhere is missing; set key model to an existing folder")

    async def fail() -> None:
        raise ValueError("broken")

    async def loop() -> None:
        print("working", flush=True)
        if config.act == "crash":
            await fail()
        if config.act == "return":
            return
        if config.act == "crash_task":
            scope.spawn("fails", fail())
        await scope.draining.wait()
        if config.act == "overrun":
            await asyncio.Event().wait()

    return loop


if __name__ == "__main__":
    sys.exit(run_service("demo", Config, build, check_bus=None))
