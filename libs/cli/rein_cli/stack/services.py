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
    work, installed, ports = plan.home.work, plan.installed, plan.ports
    weightserver = f"127.0.0.1:{ports.weightserver}"
    tasks_cache, sandbox = str(installed / "tasks"), {"home": str(installed / "sandboxes")}
    own: dict[str, Values] = {
        "weightserver": {"folder": str(work / "weights"), "listen": {"port": ports.weightserver}},
        "inference": {
            "model": str(plan.model),
            "node": part.name,
            "weightserver": weightserver,
            "engine": {"port": ports.engine(part.node), "max_context_tokens": plan.context_tokens},
        },
        "gateway": {"model": str(plan.model), "grant_secret": grant_secret, "http": {"port": ports.gateway}},
        "grader": {"state": str(work / "grader"), "tasks_cache": tasks_cache, "sandbox": sandbox},
        "learner": {"state": str(work / "learner"), "weightserver": weightserver},
        "runner": {
            "grant_secret": grant_secret,
            "gateways": [f"http://127.0.0.1:{ports.gateway}"],
            "state": str(work / "runner"),
            "tasks_cache": tasks_cache,
            "harness_home": str(installed / "harnesses"),
            "sandbox": sandbox,
        },
        "observer": {"state": str(work / "observer"), "page": {"port": ports.page}},
    }
    return own.get(part.service, {})
