"""`rein topics`: the table of topics, and whether the cluster agrees with it; `--create` makes what is missing."""

import argparse

from rein_bus.errors import BusMisconfigured
from rein_bus.preflight import preflight
from rein_cli.command import DONE, NEGATIVE, Command, deployment_arguments
from rein_cli.config import load
from rein_cli.output import Output, table
from rein_contracts.topics import TOPICS, Topic


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--create", action="store_true", help="create the topics that are missing, then check all")
    parser.add_argument("--offline", action="store_true", help="only the table; no cluster is asked")
    deployment_arguments(parser)


async def run(options: argparse.Namespace, output: Output) -> int:
    settings = load(options.home, file=options.config).kafka
    rows = [_row(topic, settings.prefix) for topic in TOPICS]
    verdict, is_fine = "not asked", True
    if not options.offline:
        try:
            report = await preflight(settings, creates=options.create)
            verdict = f"{len(report.existing)} topics fit, {len(report.created)} created on {settings.servers}"
        except BusMisconfigured as error:
            verdict, is_fine = error.detail, False
    header = ("topic", "message", "key", "partitions", "kept", "owner", "largest")
    output.result(
        {"topics": [dict(zip(header, row, strict=True)) for row in rows], "is_fine": is_fine, "cluster": verdict},
        text=f"{table(rows, header=header)}\n\ncluster: {verdict}",
    )
    return DONE if is_fine else NEGATIVE


def _row(topic: Topic, prefix: str) -> tuple[str, str, str, int, str, str, str]:
    kept = "for ever" if topic.retention_s is None else f"{topic.retention_s // 86400} d"
    return (
        topic.name(prefix),
        topic.message.DESCRIPTOR.name,
        topic.key.value,
        topic.partitions,
        "newest per key" if topic.is_compacted else kept,
        topic.owner,
        f"{topic.max_bytes // 1024} KiB",
    )


COMMAND = Command("topics", "the table of topics, checked against the cluster", arguments, run)
