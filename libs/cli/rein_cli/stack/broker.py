"""The stack's own broker where it has one, and the check that the cluster fits, whoever owns it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from rein_bus.localbroker import LocalBroker
from rein_bus.preflight import preflight
from rein_cli.stack.home import Home
from rein_cli.stack.plan import Plan
from rein_cli.stack.processes import note


async def start_broker(plan: Plan, *, said: Callable[[str], None]) -> list[str]:
    """Start the broker unless it runs or is somebody else's; create and check the topics. What was started."""
    started: list[str] = []
    if plan.owns_broker:
        broker = _broker(plan.home, plan=plan)
        if broker.pid() is None:
            began_s = time.monotonic()
            await asyncio.to_thread(broker.start)
            said(f"broker answers on {broker.servers} ({time.monotonic() - began_s:.1f} s)")
            note(plan.home, "broker", order=0, pid=broker.pid() or 0)
            started.append("broker")
    report = await preflight(plan.kafka)
    said(f"{len(report.created)} topics created, {len(report.existing)} there and fit")
    return started


def broker_runs(home: Home) -> bool:
    return _broker(home).pid() is not None


def _broker(home: Home, *, plan: Plan | None = None) -> LocalBroker:
    """The broker of `home`; to find and stop one no plan is needed."""
    if plan is None:
        return LocalBroker(home.broker, port=0, jars=Path())
    return LocalBroker(
        home.broker,
        port=plan.ports.broker,
        controller_port=plan.ports.controller,
        jars=plan.installed / "kafka" / "libs",
    )
