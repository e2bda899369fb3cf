"""`rein run FILE`: start a run, and watch it to its end with --follow; `--stop RUN` ends one."""

import argparse
from pathlib import Path

from rein.v1 import events_pb2 as ev
from rein_bus.ports import Bus, Start
from rein_cli.command import DONE, NEGATIVE, Command, deployment_arguments
from rein_cli.config import CliConfig, load
from rein_cli.errors import CannotDo
from rein_cli.output import Output
from rein_cli.progress import FOLLOWED, Progress
from rein_cli.reading import as_it_comes, open_bus, to_end
from rein_cli.rpc import start_run, stop_run
from rein_cli.runfile import load_run
from rein_cli.wanted import Filter


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="what the run is")
    parser.add_argument("--follow", action="store_true", help="show progress until the run ends")
    parser.add_argument("--stop", default="", metavar="RUN", help="ask a run to end instead")
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    config = load(options.home, file=options.config)
    if options.stop:
        await stop_run(options.stop, address=config.dispatcher)
        output.result({"run": options.stop, "state": "STOPPING"}, text=f"run {options.stop} was asked to end")
        return DONE
    if options.file is None:
        raise CannotDo("run.no_file", "name the run's TOML file (or a run to end, with --stop RUN)")
    name = await start_run(load_run(options.file), address=config.dispatcher)
    if not options.follow:
        output.result({"run": name, "state": "RUNNING"}, text=f"run {name} started; rein watch {name} shows it")
        return DONE
    output.say(f"run {name} started")
    progress = await follow(name, config=config, output=output)
    output.result({"run": name, **progress.figures()}, text=progress.line())
    return DONE if progress.state == ev.RUN_STATE_COMPLETED else NEGATIVE


async def follow(run: str, *, config: CliConfig, output: Output) -> Progress:
    """Say what changes until the run ends."""
    progress = Progress(run)
    async with open_bus(config.kafka) as bus:
        async for record in as_it_comes(bus, *FOLLOWED, start=Start.EARLIEST, wanted=Filter(run=run)):
            for news in progress.apply(record.message):
                output.say(news)
            if progress.has_ended:
                break
        return await where_it_stands(bus, run)


async def where_it_stands(bus: Bus, run: str) -> Progress:
    """The run as the topics have it now. Topics have no common order: a follower may meet a run's end too early."""
    progress = Progress(run)
    for record in await to_end(bus, *FOLLOWED, wanted=Filter(run=run)):
        list(progress.apply(record.message))
    return progress


COMMAND = Command("run", "start a run from its TOML file", arguments, run)
