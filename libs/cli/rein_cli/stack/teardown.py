"""Ending a stack: every process on record, in reverse order of start, verified dead."""

from collections.abc import Callable

from rein_cli.stack.home import Home
from rein_cli.stack.processes import recorded, stop

#: A service drains for its own `drain_s` at most, and closes; then force is used.
PATIENCE_S = 45.0


def take_down(home: Home, *, said: Callable[[str], None], patience_s: float = PATIENCE_S) -> dict[str, bool]:
    """Stop what runs; for each process, whether it went by itself."""
    outcome: dict[str, bool] = {}
    for entry in reversed(recorded(home)):
        if entry.process() is not None:
            outcome[entry.name] = stop(home, entry, patience_s=patience_s)
            said(f"{entry.name} {'stopped' if outcome[entry.name] else 'had to be killed'}")
        else:
            stop(home, entry, patience_s=0)
    return outcome
