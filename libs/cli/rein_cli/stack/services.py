"""What each service of a local stack is told. Pure: a plan in, settings out; key names are those of the services.

Only what a stack has to say stands here (addresses, folders, the shared secret); everything else is the service's own
default. A test loads every file through the service's own configuration.
"""

from collections.abc import Mapping
from typing import Any

from rein_cli.stack.plan import Part, Plan

Values = dict[str, Any]


def settings_of(plan: Plan, part: Part, *, kafka: Mapping[str, Any], grant_secret: str) -> Values:
    """All settings of one process, as its TOML file holds them."""
    return {
        "metrics_port": plan.ports.metrics(part.service, node=part.node),
        **_own(plan, part, grant_secret=grant_secret),
        "kafka": dict(kafka),
        "blobs": {"url": str(plan.home.blobs)},
        "admin": {"port": plan.ports.admin(part.service, node=part.node)},
    }


def _own(plan: Plan, part: Part, *, grant_secret: str) -> Values:
    match part.service:
        case "weightserver":
            return {"folder": str(plan.home.work / "weights"), "listen": {"port": plan.ports.weightserver}}
        case "inference":
            return {
                "model": str(plan.model),
                "node": part.name,
                "weightserver": f"127.0.0.1:{plan.ports.weightserver}",
                "engine": {"port": plan.ports.engine(part.node)},
            }
        case "gateway":
            return {"model": str(plan.model), "grant_secret": grant_secret, "http": {"port": plan.ports.gateway}}
        case "runner":
            return {
                "grant_secret": grant_secret,
                "gateways": [f"http://127.0.0.1:{plan.ports.gateway}"],
                "state": str(plan.home.work / "runner"),
                "tasks_cache": str(plan.installed / "tasks"),
                "harness_home": str(plan.installed / "harnesses"),
                "sandbox": {"home": str(plan.installed / "sandboxes")},
            }
        case "grader":
            return {
                "state": str(plan.home.work / "grader"),
                "tasks_cache": str(plan.installed / "tasks"),
                "sandbox": {"home": str(plan.installed / "sandboxes")},
            }
        case "observer":
            return {"state": str(plan.home.work / "observer"), "page": {"port": plan.ports.page}}
        case _:
            return {}
