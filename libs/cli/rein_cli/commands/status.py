"""`rein status`: what every service says about itself."""

import argparse
import asyncio

from rein.v1 import admin_pb2
from rein_cli.command import DONE, NEGATIVE, Command, deployment_arguments
from rein_cli.config import load
from rein_cli.errors import CannotDo, ServiceUnreachable
from rein_cli.output import Output, table
from rein_cli.rpc import get_status, is_serving


def arguments(parser: argparse.ArgumentParser) -> None:
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    config = load(options.home, file=options.config)
    if not config.services:
        raise CannotDo("status.no_stack", f"no stack in {options.home}; start one with rein up, or name its --config")
    states = dict(
        zip(config.services, await asyncio.gather(*(_ask(*each) for each in config.services.items())), strict=True)
    )
    is_well = all(state["is_serving"] for state in states.values())
    rows = [
        (name, "serving" if s["is_serving"] else "AWAY", s["num_in_flight"], f"{s['uptime_s']:.0f}s", s["details"])
        for name, s in states.items()
    ]
    text = table(rows, header=("service", "health", "in flight", "up", "details"))
    output.result(states, text=f"{text}\npage: {config.page or 'none'}")
    return DONE if is_well else NEGATIVE


async def _ask(name: str, address: str) -> dict[str, object]:
    try:
        status = await get_status(name, address=address)
    except ServiceUnreachable:
        status = admin_pb2.GetStatusResponse()
    return {
        "address": address,
        "is_serving": await is_serving(address),
        "instance": status.instance,
        "uptime_s": status.uptime_s,
        "is_draining": status.is_draining,
        "num_in_flight": status.num_in_flight,
        "details": dict(sorted(status.details.items())),
    }


COMMAND = Command("status", "what every service says about itself", arguments, run)
