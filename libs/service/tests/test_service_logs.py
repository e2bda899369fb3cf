"""Log lines: one JSON object each, with the fields bound around them."""

import asyncio
import json
import logging

from rein_service.logs import JsonLines, PlainLines, bound, fields_of


def line(formatter: logging.Formatter, **extra: object) -> str:
    record = logging.makeLogRecord({"msg": "turn.captured", "levelname": "INFO", **extra})
    return formatter.format(record)


def test_a_json_line_carries_event_extra_and_bound_fields() -> None:
    with bound(rollout="r.g0/1", attempt=2), bound(attempt=3):
        fields = json.loads(line(JsonLines(service="gateway", instance="i"), num_tokens=7))
    assert fields["event"] == "turn.captured"
    assert (fields["service"], fields["rollout"], fields["attempt"], fields["num_tokens"]) == (
        "gateway",
        "r.g0/1",
        3,
        7,
    )


def test_a_plain_line_is_one_line() -> None:
    assert line(PlainLines(), a=1).endswith("turn.captured a=1")


async def test_bound_fields_stay_inside_their_task() -> None:
    async def inside(value: int) -> object:
        with bound(rollout=value):
            await asyncio.sleep(0)
            return fields_of(logging.makeLogRecord({}))["rollout"]

    assert list(await asyncio.gather(inside(1), inside(2))) == [1, 2]
    assert "rollout" not in fields_of(logging.makeLogRecord({}))
