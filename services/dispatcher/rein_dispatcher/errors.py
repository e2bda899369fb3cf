"""The dispatcher's errors.

ReinError
└── RejectedError
    ├── SpecRejected      a run's specification is wrong          -> INVALID_ARGUMENT
    ├── RunExists         the name is taken                       -> ALREADY_EXISTS
    ├── RunMissing        no such run                             -> NOT_FOUND
    └── ClusterBusy       another run is active                   -> FAILED_PRECONDITION
"""

from rein_bus.errors import RejectedError


class SpecRejected(RejectedError):
    def __init__(self, field: str, value: object, wanted: str) -> None:
        super().__init__("run.spec", f"{field} is {value!r}; it must be {wanted}", field=field)
        self.field = field


class RunExists(RejectedError):
    def __init__(self, run: str) -> None:
        super().__init__("run.exists", f"a run named {run!r} exists already; choose another name", run=run)


class RunMissing(RejectedError):
    def __init__(self, run: str) -> None:
        super().__init__("run.missing", f"there is no run named {run!r}", run=run)


class ClusterBusy(RejectedError):
    def __init__(self, run: str) -> None:
        super().__init__("run.busy", f"run {run!r} is active; stop it first or wait for its end", run=run)
