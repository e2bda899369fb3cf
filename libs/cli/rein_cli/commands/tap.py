"""`rein tap TOPIC`: a topic's events as JSON lines, or as columns in a Parquet file."""

import argparse
from pathlib import Path

from google.protobuf.message import Message

from rein_bus.ports import Bus, Start
from rein_cli.command import DONE, Command, deployment_arguments
from rein_cli.config import load
from rein_cli.errors import CannotDo
from rein_cli.output import Output
from rein_cli.reading import as_it_comes, open_bus, to_end
from rein_cli.rows import row_of, write_parquet
from rein_cli.wanted import Filter
from rein_contracts.topics import TOPICS, topic_named
from rein_service.config import nearest


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="e.g. turn.captured; rein topics lists them")
    parser.add_argument("--run", default="", help="only events of this run")
    parser.add_argument("--task", default="", help="only events of this task")
    parser.add_argument("--group", default="", help="only events of this group")
    parser.add_argument("--from-beginning", action="store_true", help="everything there is (the default), then end")
    parser.add_argument("--tail", action="store_true", help="what comes from now on; with --from-beginning: both")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="write what there is as columns")
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    message = _message(options.topic)
    if options.parquet and options.tail:
        raise CannotDo("tap.endless", "--parquet writes what there is; it does not go with --tail")
    wanted = Filter(run=options.run, task=options.task, group=options.group)
    config = load(options.home, file=options.config)
    async with open_bus(config.kafka) as bus:
        if options.tail:
            start = Start.EARLIEST if options.from_beginning else Start.LATEST
            await _print_on(bus, message, start=start, wanted=wanted, output=output)
        records = await to_end(bus, message, wanted=wanted)
    rows = [row_of(record) for record in records]
    if options.parquet:
        number = write_parquet(rows, file=options.parquet)
        output.result({"file": str(options.parquet), "rows": number}, text=f"{number} rows in {options.parquet}")
    else:
        for row in rows:
            output.row(row)
    return DONE


async def _print_on(bus: Bus, message: type[Message], *, start: Start, wanted: Filter, output: Output) -> None:
    """Print until the user has seen enough."""
    async for record in as_it_comes(bus, message, start=start, wanted=wanted):
        output.row(row_of(record))


def _message(name: str) -> type[Message]:
    """The message of a topic given as `turn.captured` or in full, `rein.turn.captured.v1`."""
    for noun_event in (name, ".".join(name.split(".")[1:-1])):
        try:
            return topic_named(noun_event).message
        except KeyError:
            continue
    raise CannotDo("tap.no_topic", f"there is no topic {name!r}{nearest(name, among=[t.noun_event for t in TOPICS])}")


COMMAND = Command("tap", "print a topic's events as JSON lines, or write them as Parquet", arguments, run)
