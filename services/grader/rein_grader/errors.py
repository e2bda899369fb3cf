"""What keeps a rollout from being graded. Each becomes an absent reward with an owner; none stops the service.

ReinError
├── TransientError
│   ├── SandboxFailed (rein_sandboxes)   owner SANDBOX, tried again first
│   ├── VerifierFailed                   owner GRADER, tried again first: the tests were never run
│   └── BlobUnavailable (rein_blobs)     owner GRADER, tried again first
└── RejectedError
    ├── TaskRefused                      owner TASK: the task cannot be used as it stands, or is not the one meant
    └── BlobMissing, BlobDamaged         owner GRADER
"""

from rein_bus.errors import RejectedError, TransientError


class VerifierFailed(TransientError):
    """Code is `grader.verifier_<what>`."""


class TaskRefused(RejectedError):
    """Code is `task.<what>`."""
