"""Starting a stack: broker, topics, services in order; all of them healthy, or none left running.

What already runs is left alone, so a second start brings back only what has died, with its settings as they were.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rein_cli.stack.broker import broker_runs, start_broker
from rein_cli.stack.health import Starting, all_serving
from rein_cli.stack.plan import Part, Plan
from rein_cli.stack.processes import recorded, start
from rein_cli.stack.teardown import take_down

#: An inference node imports vLLM and loads the model; on a busy machine that takes minutes.
HEALTHY_WITHIN_S = 300.0


async def bring_up(plan: Plan, *, said: Callable[[str], None]) -> list[str]:
    """Start what does not run; names of the processes started. Raises ReinError with all it started stopped again."""
    running = {entry.name for entry in recorded(plan.home) if entry.process()}
    had_broker = broker_runs(plan.home)
    with ExitStack() as undo:
        undo.callback(take_down, plan.home, said=said, spare=running, spares_broker=had_broker)
        started = await start_broker(plan, said=said)
        starting = {part.name: _start(plan, part) for part in plan.parts() if part.name not in running}
        await all_serving(plan.home, starting, within_s=HEALTHY_WITHIN_S, said=said)
        undo.pop_all()
    return [*started, *starting]


def _start(plan: Plan, part: Part) -> Starting:
    program = Path(sys.executable).with_name(f"rein-{part.service}")
    process = start(plan.home, part.name, command=[str(program), "--config", str(plan.home.config(part.name))])
    return Starting(part.name, part.service, plan.admin_address(part), process)
