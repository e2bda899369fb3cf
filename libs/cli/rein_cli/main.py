"""The `rein` command: one word picks what to do.

Exit status: 0 done, 1 the answer is no (a failed run, an offence, an unhealthy service), 2 it could not be done: one
line on standard error (an `error` object on standard output with --json) names the thing, the place and the remedy.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from rein_bus.errors import ReinError
from rein_cli.command import CANNOT, DONE, Command
from rein_cli.commands import audit, doctor, down, run, status, tap, topics, up, watch
from rein_cli.output import Output

COMMANDS: tuple[Command, ...] = (
    up.COMMAND,
    down.COMMAND,
    status.COMMAND,
    run.COMMAND,
    watch.COMMAND,
    tap.COMMAND,
    topics.COMMAND,
    doctor.COMMAND,
    audit.COMMAND,
)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rein", description="Train coding agents in their own harnesses.")
    words = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        word = words.add_parser(command.name, help=command.help, description=command.help)
        word.add_argument("--json", action="store_true", help="print JSON for programs")
        command.arguments(word)
        word.set_defaults(command=command)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    output = Output(is_json=options.json)
    logging.basicConfig(level=logging.CRITICAL)  # what went wrong is said once, by the command
    try:
        status: int = asyncio.run(options.command.run(options, output))
        return status
    except ReinError as error:
        output.fail(error)
        return CANNOT
    except KeyboardInterrupt:
        return DONE
    except BrokenPipeError:
        # `rein tap ... | head` has what it wanted; nothing may be written to the closed pipe at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


if __name__ == "__main__":
    raise SystemExit(main())
