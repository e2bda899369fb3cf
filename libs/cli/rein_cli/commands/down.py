"""`rein down`: stop the local stack."""

import argparse

from rein_cli.command import DONE, Command, home_argument
from rein_cli.output import Output
from rein_cli.stack.home import Home
from rein_cli.stack.teardown import take_down


def arguments(parser: argparse.ArgumentParser) -> None:
    home_argument(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    stopped = take_down(Home(options.home.resolve()), said=output.say)
    text = f"{len(stopped)} processes stopped" if stopped else f"nothing runs in {options.home}"
    output.result({"stopped": stopped}, text=text)
    return DONE


COMMAND = Command("down", "stop the local stack", arguments, run)
