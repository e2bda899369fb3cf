"""What each service of a local stack is told. Pure: a plan in, settings out; key names are those of the services."""

from typing import Any

from rein_cli.stack.plan import Part, Plan

Values = dict[str, Any]


def settings_of(plan: Plan, part: Part, *, grant_secret: str) -> Values:
    """All settings of one process, as its TOML file holds them."""
    return {}
