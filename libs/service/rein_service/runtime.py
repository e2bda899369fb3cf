"""The life of a service process, from arguments to exit status.

Exit status: 0 stopped on request (also while still connecting), 1 a loop or task failed or the drain limit was
overrun, 2 it could not be set up: one line on standard error names the thing, the place and the remedy. Signal
handlers stand before `build` runs. A loop that returns without having been asked is a failure. This is the one place
where unknown exceptions end up.
"""

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from rein_bus.errors import ReinError
from rein_bus.preflight import preflight
from rein_bus.settings import KafkaSettings
from rein_service.admin import AdminServer, AdminServicer, Figures
from rein_service.config import ServiceConfig, load_config, redacted_toml
from rein_service.errors import ConfigRejected
from rein_service.logs import configure_logs
from rein_service.metrics import metrics_endpoint
from rein_service.scope import Loop, Scope

STOPPED, FAILED, MISCONFIGURED = 0, 1, 2

#: Closing takes this long at most before the process leaves without it.
CLOSE_S = 10.0

C = TypeVar("C", bound=ServiceConfig)

log = logging.getLogger(__name__)


def run_service(
    name: str,
    config_class: type[C],
    build: Callable[[C, Scope], Awaitable[Loop]],
    *,
    check_bus: Callable[[KafkaSettings], Awaitable[object]] | None = preflight,
) -> int:
    """Run the service `name` until it ends; the exit status.

    Nothing is built on a bus that does not fit; a service that uses no bus passes `check_bus=None`.
    """
    parser = argparse.ArgumentParser(prog=f"rein-{name}", description=f"Rein's {name} service.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file; the environment wins over it")
    try:
        config = load_config(config_class, service=name, file=parser.parse_args().config)
    except ConfigRejected as error:
        return _refuse(name, error)
    configure_logs(service=name, instance=config.instance, level=config.log_level, form=config.log_format)
    faulthandler.register(signal.SIGUSR1)  # kill -USR1 shows where every thread stands

    async def checked_build(scope: Scope) -> Loop:
        if check_bus is not None:
            await check_bus(config.kafka)
        return await build(config, scope)

    return asyncio.run(_Process(name, config).run(checked_build))


def _refuse(name: str, error: ReinError) -> int:
    print(f"rein-{name}: {' '.join(error.detail.split())}", file=sys.stderr, flush=True)
    return MISCONFIGURED


class _Process:
    """One service's life inside its event loop."""

    def __init__(self, name: str, config: ServiceConfig) -> None:
        self._name = name
        self._config = config

    async def run(self, build: Callable[[Scope], Awaitable[Loop]]) -> int:
        try:
            admin = AdminServer(host=self._config.admin.host, port=self._config.admin.port)
        except ReinError as error:
            return _refuse(self._name, error)
        scope = Scope(admin=admin)
        self._listen(scope)
        status = await self._live(scope, build=build)
        return await self._leave(scope, status=status)

    def _listen(self, scope: Scope) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, scope.draining.set)

    async def _live(self, scope: Scope, *, build: Callable[[Scope], Awaitable[Loop]]) -> int:
        """Build, then work; every outcome becomes an exit status."""
        try:
            await scope.enter(metrics_endpoint(host=self._config.admin.host, port=self._config.metrics_port))
            work = await self._build(scope, build=build)
        except ReinError as error:
            return _refuse(self._name, error)
        except Exception:
            log.critical("service.build_failed", exc_info=True)
            return FAILED
        if work is None:
            return STOPPED
        try:
            return await self._work(scope, loop=work)
        except Exception:
            log.critical("service.failed", exc_info=True)
            return FAILED

    async def _build(self, scope: Scope, *, build: Callable[[Scope], Awaitable[Loop]]) -> Loop | None:
        """The loop; None when a stop was asked for before it was built."""
        building = asyncio.ensure_future(build(scope))
        await _first(building, scope.draining.wait(), scope.failed())
        if not building.done():
            building.cancel()
            await asyncio.wait([building], timeout=CLOSE_S)
            if scope.draining.is_set():
                return None
            scope.raise_failure()
        return await building

    async def _work(self, scope: Scope, *, loop: Loop) -> int:
        await scope.admin.start(self._servicer(scope))
        config = redacted_toml(self._config)
        log.info("service.started", extra={"admin_port": scope.admin.port, "config": config})
        working = asyncio.ensure_future(loop())
        await _first(working, scope.draining.wait(), scope.failed())
        if scope.draining.is_set():
            await scope.admin.turn_away()
            log.info("service.draining", extra={"drain_s": self._config.drain_s})
            await _first(working, scope.failed(), timeout_s=self._config.drain_s)
        if not working.done():
            working.cancel()
            await asyncio.wait([working], timeout=CLOSE_S)
            scope.raise_failure()
            log.error("service.drain_overrun", extra={"drain_s": self._config.drain_s})
            await self._abandon(scope)
        await working
        scope.raise_failure()
        if not scope.draining.is_set():
            log.critical("service.loop_returned", extra={"detail": "the loop ended without having been asked to"})
            return FAILED
        return STOPPED

    def _servicer(self, scope: Scope) -> AdminServicer:
        def figures() -> Figures:
            status = scope.report()
            return Figures(
                is_draining=scope.draining.is_set(), num_in_flight=status.num_in_flight, details=status.details
            )

        return AdminServicer(
            service=self._name,
            instance=self._config.instance,
            config=redacted_toml(self._config),
            figures=figures,
            drain=scope.draining.set,
        )

    async def _leave(self, scope: Scope, *, status: int) -> int:
        """Close everything; an unclean close turns success into failure."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await scope.admin.stop(grace_s=1.0)
                await scope.close()
        except TimeoutError:
            log.error("service.close_overrun", extra={"close_s": CLOSE_S})
            await self._abandon(scope)
        except Exception:
            log.critical("service.close_failed", exc_info=True)
            status = status or FAILED
        log.info("service.stopped", extra={"status": status})
        return status

    async def _abandon(self, scope: Scope) -> None:
        """Leave now: a thread that still works cannot be cancelled, and the interpreter would wait for it."""
        with suppress(Exception):
            await asyncio.wait_for(scope.close(), CLOSE_S)
        logging.shutdown()
        os._exit(FAILED)


async def _first(*awaitables: Awaitable[object], timeout_s: float | None = None) -> None:
    """Wait for the first of them to end. Futures passed in go on; coroutines passed in are cancelled."""
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future, given in zip(futures, awaitables, strict=True):
            if future is not given:
                future.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await future
