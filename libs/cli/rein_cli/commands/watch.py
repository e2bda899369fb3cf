"""`rein watch [RUN]`: a run in the terminal as it goes, from the topics. Without a terminal, one line per change."""

import argparse
import asyncio
import time

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rein.v1 import events_pb2 as ev
from rein_bus.ports import Bus, Start
from rein_cli.command import DONE, Command, deployment_arguments
from rein_cli.commands.run import where_it_stands
from rein_cli.config import load
from rein_cli.errors import CannotDo
from rein_cli.output import Output
from rein_cli.progress import FOLLOWED, Progress
from rein_cli.reading import as_it_comes, open_bus, to_end
from rein_cli.wanted import Filter

#: Events come faster than a person reads; the picture is drawn this often at most, seconds.
DRAW_S = 0.25
#: Newest steps and news shown.
NUM_STEPS, NUM_NEWS = 12, 6


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="default: the newest run")
    parser.add_argument("--once", action="store_true", help="show where it stands now and end")
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    config = load(options.home, file=options.config)
    async with open_bus(config.kafka) as bus:
        name = options.run or await _newest(bus)
        if options.once:
            progress = await where_it_stands(bus, name)
            output.result({"run": name, **progress.figures()}, text=progress.line())
        elif output.is_live:
            await _draw(bus, name)
        else:
            await _tell(bus, name, output=output)
    return DONE


async def _newest(bus: Bus) -> str:
    records = await to_end(bus, ev.RunChanged, wanted=Filter())
    names = [record.message.run for record in records if isinstance(record.message, ev.RunChanged)]
    if not names:
        raise CannotDo("watch.no_run", "there has been no run yet; start one with rein run FILE.toml")
    return names[-1]


async def _tell(bus: Bus, name: str, *, output: Output) -> None:
    """Lines for a pipe; JSON figures after each piece of news with --json."""
    progress = Progress(name)
    async for record in as_it_comes(bus, *FOLLOWED, start=Start.EARLIEST, wanted=Filter(run=name)):
        for news in progress.apply(record.message):
            output.result({"run": name, **progress.figures(), "news": news}, text=news)
        if progress.has_ended:
            return


async def _draw(bus: Bus, name: str) -> None:
    progress, news, drawn_s = Progress(name), list[str](), 0.0
    with Live(Text(f"reading run {name}"), auto_refresh=False) as live:
        async for record in as_it_comes(bus, *FOLLOWED, start=Start.EARLIEST, wanted=Filter(run=name)):
            news += progress.apply(record.message)
            if progress.has_ended or time.monotonic() - drawn_s > DRAW_S:
                drawn_s = time.monotonic()
                live.update(picture(progress, news=news), refresh=True)
                await asyncio.sleep(0)
            if progress.has_ended:
                return


def picture(progress: Progress, *, news: list[str]) -> RenderableType:
    """Nodes, newest steps, newest news."""
    nodes = Table("node", "state", "version", "running", "waiting", title="inference")
    for name, node in sorted(progress.nodes.items()):
        state = ev.NodeState.Name(node.state).removeprefix("NODE_STATE_")
        nodes.add_row(name, state, str(node.version), str(node.num_running), str(node.num_waiting))
    steps = Table("step", "reward", "loss", "correlation", "staleness", "tokens", "seconds", title="learner")
    for step in sorted(progress.steps.values(), key=lambda each: each.step)[-NUM_STEPS:]:
        steps.add_row(
            str(step.step),
            f"{step.mean_reward:.3f}",
            f"{step.loss:+.4f}",
            f"{step.correlation:.5f}" if step.HasField("correlation") else "-",
            str(step.max_staleness_versions),
            str(step.num_trainable_tokens),
            f"{step.step_s:.1f}",
        )
    return Group(Text(progress.line(), style="bold"), nodes, steps, *map(Text, news[-NUM_NEWS:]))


COMMAND = Command("watch", "a run in the terminal as it goes", arguments, run)
