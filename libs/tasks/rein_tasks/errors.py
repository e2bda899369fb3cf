"""Errors of this library. Services wrap them into their own `ReinError` leaves.

ValueError
└── TaskSetBroken     a task set, package or task that cannot be used as it stands
RuntimeError
└── VerifierBroken    the tests were never run, so there is no result (and no zero)
"""


class TaskSetBroken(ValueError):
    """Names the task (or package), the file, the field and what to do about it."""

    def __init__(self, problem: str, *, file: str, field: str, remedy: str, task: str = "") -> None:
        subject = f"task {task}: " if task else ""
        super().__init__(f"{subject}{file}: {field}: {problem}; {remedy}")
        self.task = task
        self.file = file
        self.field = field
        self.remedy = remedy


class VerifierBroken(RuntimeError):
    """The test runner did not get as far as the tree under test: an absent reward, not a failed one."""
