"""What a planned stack needs of this machine before anything is started."""

from collections.abc import Sequence

from rein_cli import checks
from rein_cli.checks import Check
from rein_cli.errors import CannotDo
from rein_cli.stack.plan import Plan

#: Free memory a stack needs, GiB: broker and light services, learner; and each inference node.
BASE_GIB, NODE_GIB = 3.0, 2.0


def machine_checks(plan: Plan, *, min_memory_gib: float | None, min_disk_gib: float) -> list[Check]:
    """Everything that can be known before the first process starts."""
    needed_gib = BASE_GIB + NODE_GIB * plan.num_nodes if min_memory_gib is None else min_memory_gib
    return [
        *([checks.java()] if plan.owns_broker else []),
        checks.sandbox(),
        checks.memory(needed_gib=needed_gib),
        checks.disk(plan.home.path, needed_gib=min_disk_gib),
        *checks.ports(plan.listening()),
        checks.model(plan.model),
    ]


def refuse(found: Sequence[Check]) -> None:
    """Raise CannotDo for the first check that failed, counting the others."""
    wrong = [check for check in found if not check.is_ok]
    if wrong:
        others = f" ({len(wrong) - 1} more; rein doctor lists all)" if len(wrong) > 1 else ""
        raise CannotDo(f"check.{wrong[0].name}", f"{wrong[0].line()}{others}")
