"""`rein up`: a local stack of broker and services, each a process of its own.

The first start writes `<home>/config/*.toml`; later starts use them as they are, unless an option asks for others.
"""

import argparse
from pathlib import Path

from rein_bus.settings import KafkaSettings
from rein_cli.command import DONE, Command, home_argument
from rein_cli.errors import CannotDo
from rein_cli.output import Output
from rein_cli.stack.home import Home
from rein_cli.stack.machine import machine_checks, refuse
from rein_cli.stack.processes import recorded
from rein_cli.stack.settings import StackFile, read_plan, write_configs
from rein_cli.stack.start import bring_up
from rein_service.config import load_file


def arguments(parser: argparse.ArgumentParser) -> None:
    home_argument(parser)
    parser.add_argument("--model", type=Path, metavar="DIR", help="the policy's folder (needed the first time)")
    parser.add_argument("--nodes", type=int, metavar="N", help="inference nodes (1)")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="an existing cluster instead of an own broker")
    parser.add_argument(
        "--kafka-settings", type=Path, metavar="FILE", help="TOML with the keys of a [kafka] section: TLS, SASL, prefix"
    )
    parser.add_argument(
        "--installed", type=Path, default=Path("var"), metavar="DIR", help="where make setup put things (var)"
    )
    parser.add_argument("--port-offset", type=int, metavar="N", help="shift every port, for a second stack")
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="any other setting")
    parser.add_argument("--min-memory-gib", type=float, metavar="GIB", help="refuse to start with less free memory")
    parser.add_argument("--min-disk-gib", type=float, default=4.0, metavar="GIB", help="refuse to start with less disk")


async def run(options: argparse.Namespace, output: Output) -> int:
    home = Home(options.home.resolve())
    if _asks_for_another(options) or not home.config("stack").exists():
        if _running(home):
            raise CannotDo("up.runs", f"a stack runs in {home.path}; rein down --home {home.path} stops it first")
        write_configs(_stack_file(options), home=home, overrides=options.set)
    plan = read_plan(home)
    if not _running(home):
        refuse(machine_checks(plan, min_memory_gib=options.min_memory_gib, min_disk_gib=options.min_disk_gib))
    started = await bring_up(plan, said=lambda text: output.say(f"  {text}"))
    text = f"stack in {home.path} is up; page: http://127.0.0.1:{plan.ports.page}/ ; stop it with rein down"
    output.result({"home": str(home.path), "started": started, "page_port": plan.ports.page}, text=text)
    return DONE


def _running(home: Home) -> list[str]:
    return [entry.name for entry in recorded(home) if entry.process()]


def _asks_for_another(options: argparse.Namespace) -> bool:
    asked = (options.model, options.nodes, options.kafka, options.kafka_settings, options.port_offset)
    return bool(options.set) or any(each is not None for each in asked)


def _stack_file(options: argparse.Namespace) -> StackFile:
    if options.model is None:
        raise CannotDo("up.no_model", "name the policy's folder with --model DIR; a first start needs it")
    kafka = load_file(KafkaSettings, file=options.kafka_settings) if options.kafka_settings else None
    if options.kafka:
        kafka = (kafka or KafkaSettings()).model_copy(update={"servers": options.kafka})
    return StackFile(
        model=options.model.resolve(),
        nodes=options.nodes or 1,
        port_offset=options.port_offset or 0,
        installed=options.installed.resolve(),
        kafka=kafka,
    )


COMMAND = Command("up", "start a local stack: a broker and the services", arguments, run)
