"""Ending a stack: every process on record, the broker among them, in reverse order of start; verified dead."""

from collections.abc import Callable, Collection

from rein_cli.stack.home import Home
from rein_cli.stack.processes import recorded, stop

#: A service drains for its own `drain_s` at most, and closes; then force is used.
PATIENCE_S = 45.0


def take_down(
    home: Home,
    *,
    said: Callable[[str], None],
    spare: Collection[str] = (),
    patience_s: float = PATIENCE_S,
) -> dict[str, bool]:
    """Stop what runs, except what is spared; for each process stopped, whether it went by itself."""
    outcome: dict[str, bool] = {}
    for entry in reversed(recorded(home)):
        if entry.name in spare:
            continue
        is_alive = entry.process() is not None
        went = stop(home, entry, patience_s=patience_s)
        if is_alive:
            outcome[entry.name] = went
            said(f"{entry.name} {'stopped' if went else 'had to be killed'}")
    return outcome
