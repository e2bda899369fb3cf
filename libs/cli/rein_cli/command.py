"""What a command is: a name, arguments, and a coroutine that returns the exit status."""

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rein_cli.output import Output

DONE, NEGATIVE, CANNOT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Command:
    """One word after `rein`."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], Awaitable[int]]


def home_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--home", type=Path, default=Path("var/stack"), metavar="DIR", help="folder of the local stack (var/stack)"
    )


def deployment_arguments(parser: argparse.ArgumentParser) -> None:
    """For commands that talk to a deployment, local or not."""
    home_argument(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="addresses of another deployment (like <home>/config/cli.toml)"
    )
