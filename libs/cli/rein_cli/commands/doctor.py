"""`rein doctor`: everything a run needs, checked; what fails comes with its remedy."""

import argparse
import dataclasses
from pathlib import Path

from rein_bus.errors import ReinError
from rein_cli import checks, installed
from rein_cli.checks import Check
from rein_cli.command import DONE, NEGATIVE, Command, deployment_arguments
from rein_cli.config import load
from rein_cli.output import Output
from rein_cli.reading import open_bus
from rein_cli.stack.broker import broker_runs
from rein_cli.stack.home import Home
from rein_cli.stack.machine import machine_checks
from rein_cli.stack.processes import recorded
from rein_cli.stack.settings import read_plan


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, metavar="DIR", help="a policy's folder to look at")
    parser.add_argument("--task-set", type=Path, metavar="DIR", help="a task set to look at")
    parser.add_argument(
        "--installed", type=Path, default=Path("var"), metavar="DIR", help="where make setup put things (var)"
    )
    parser.add_argument("--min-memory-gib", type=float, metavar="GIB", help="free memory to ask for")
    parser.add_argument("--min-disk-gib", type=float, default=4.0, metavar="GIB", help="free disk to ask for")
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    home = Home(options.home.resolve())
    found = _of_machine(home, options)
    found += [
        installed.base_root(options.installed / "sandboxes"),
        *installed.harnesses(options.installed / "harnesses"),
    ]
    if options.model:
        found.append(checks.model(options.model))
    if options.task_set:
        found.append(installed.task_set(options.task_set))
    found.append(await _broker(home, options))
    is_well = all(check.is_ok for check in found)
    lines = [f"{'ok   ' if check.is_ok else 'WRONG'} {check.name}: {check.line()}" for check in found]
    output.result({"is_ok": is_well, "checks": [dataclasses.asdict(check) for check in found]}, text="\n".join(lines))
    return DONE if is_well else NEGATIVE


def _of_machine(home: Home, options: argparse.Namespace) -> list[Check]:
    plan = read_plan(home) if home.config("stack").exists() else None
    is_up = any(entry.process() for entry in recorded(home))
    if plan is None or is_up:
        memory_gib = 0.0 if is_up else 5.0
        return [
            checks.java(),
            checks.sandbox(),
            checks.memory(needed_gib=options.min_memory_gib or memory_gib),
            checks.disk(home.path, needed_gib=options.min_disk_gib),
        ]
    return machine_checks(plan, min_memory_gib=options.min_memory_gib, min_disk_gib=options.min_disk_gib)


async def _broker(home: Home, options: argparse.Namespace) -> Check:
    """Whether it answers; one that the next `rein up` starts need not."""
    plan = read_plan(home) if home.config("stack").exists() else None
    if options.config is None and (plan is None or plan.owns_broker) and not broker_runs(home):
        return checks.fine("broker", "does not run; rein up starts it")
    settings = load(options.home, file=options.config).kafka
    try:
        async with open_bus(settings):
            return checks.fine("broker", f"{settings.servers} answers")
    except ReinError as error:
        return checks.wrong("broker", error.detail, remedy="start it, or correct the [kafka] section")


COMMAND = Command("doctor", "check everything a run needs", arguments, run)
