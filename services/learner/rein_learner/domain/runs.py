"""Which run is served: a fold over RunChanged. A run only moves forward, whatever order its events are read in."""

from rein.v1 import events_pb2 as ev

_PRECEDENCE: dict["ev.RunState.ValueType", int] = {
    ev.RUN_STATE_UNSPECIFIED: 0,
    ev.RUN_STATE_RUNNING: 1,
    ev.RUN_STATE_STOPPING: 2,
    ev.RUN_STATE_COMPLETED: 3,
    ev.RUN_STATE_STOPPED: 3,
    ev.RUN_STATE_FAILED: 3,
}


class Runs:
    """All runs of the deployment."""

    def __init__(self) -> None:
        self._newest: dict[str, ev.RunChanged] = {}

    def apply(self, event: ev.RunChanged) -> None:
        known = self._newest.get(event.run)
        if known is None or _PRECEDENCE[event.state] >= _PRECEDENCE[known.state]:
            self._newest[event.run] = event

    def running(self) -> list[ev.RunSpec]:
        """Specifications of the runs to train, by name; the dispatcher sees to it that there is at most one."""
        return [event.spec for _, event in sorted(self._newest.items()) if event.state == ev.RUN_STATE_RUNNING]

    def is_running(self, run: str) -> bool:
        return run in self._newest and self._newest[run].state == ev.RUN_STATE_RUNNING
