"""Starting a stack: broker, topics, services in order; all of them healthy, or none left running.

What already runs is left alone, so a second start brings back only what has died, with its settings as they were.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rein_cli.stack.broker import start_broker
from rein_cli.stack.health import Starting, all_serving
from rein_cli.stack.plan import Part, Plan
from rein_cli.stack.processes import recorded, start
from rein_cli.stack.teardown import take_down

#: An inference node imports vLLM and loads the model; on a busy machine that takes minutes.
HEALTHY_WITHIN_S = 300.0


async def bring_up(plan: Plan, *, said: Callable[[str], None]) -> list[str]:
    """Start what does not run; names of the processes started. Raises ReinError with all it started stopped again."""
    running = {entry.name for entry in recorded(plan.home) if entry.process()}
    with ExitStack() as undo:
        undo.callback(take_down, plan.home, said=said, spare=running)
        started = await start_broker(plan, said=said)
        missing = [(order, part) for order, part in enumerate(plan.parts(), 1) if part.name not in running]
        starting = {part.name: _start(plan, part, order=order) for order, part in missing}
        await all_serving(plan.home, starting, within_s=HEALTHY_WITHIN_S, said=said)
        undo.pop_all()
    return [*started, *starting]


def _start(plan: Plan, part: Part, *, order: int) -> Starting:
    program = Path(sys.executable).with_name(f"rein-{part.service}")
    command = [str(program), "--config", str(plan.home.config(part.name))]
    process = start(plan.home, part.name, order=order, command=command)
    return Starting(part.name, part.service, plan.admin_address(part), process)
