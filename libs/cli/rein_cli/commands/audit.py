"""`rein audit RUN`: prove from the topics that nothing was lost and nothing trained twice."""

import argparse
import dataclasses

from rein_cli.audit import EVENTS, Verdict, audit
from rein_cli.command import DONE, NEGATIVE, Command, deployment_arguments
from rein_cli.config import load
from rein_cli.errors import CannotDo
from rein_cli.output import Output
from rein_cli.reading import open_bus, to_end
from rein_cli.wanted import Filter


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of the run")
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    config = load(options.home, file=options.config)
    async with open_bus(config.kafka) as bus:
        records = await to_end(bus, *EVENTS, wanted=Filter(run=options.run))
    if not records:
        raise CannotDo("audit.no_run", f"no event of run {options.run!r} on {config.kafka.servers}; check its name")
    verdict = audit((record.message for record in records), run=options.run)
    output.result({**dataclasses.asdict(verdict), "is_clean": verdict.is_clean}, text=describe(verdict))
    return DONE if verdict.is_clean else NEGATIVE


def describe(verdict: Verdict) -> str:
    """The verdict for a person: counts, then offences."""
    lines = [
        f"run {verdict.run}: {verdict.state}, {verdict.steps} steps, {verdict.requested} rollouts requested "
        f"({verdict.retried} further attempts)",
        f"  trained {verdict.trained}, evaluated {verdict.evaluated}, open {verdict.open}, "
        f"lost {verdict.lost}, doubled {verdict.doubled}",
        *(f"  rewarded, not trained on: {number} {reason}" for reason, number in verdict.set_aside.items()),
        *(f"  absent: {number} {reason}" for reason, number in verdict.absent.items()),
        *(f"  OFFENCE {each.code} {each.about}: {each.detail}" for each in verdict.offences),
        f"  {'clean' if verdict.is_clean else f'{len(verdict.offences)} offences'}",
    ]
    return "\n".join(lines)


COMMAND = Command("audit", "prove from the topics that a run lost and doubled nothing", arguments, run)
