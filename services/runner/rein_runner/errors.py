"""The runner's errors. Each becomes the failure of one rollout; none stops the service.

ReinError
├── TransientError
│   ├── SandboxFailed (rein_sandboxes)   owner SANDBOX
│   └── GatewayAway                      owner INFERENCE
└── RejectedError
    ├── TaskRefused                      owner TASK: the task cannot be used as it stands, or is not the one meant
    ├── HarnessRefused                   owner OPERATOR: unknown, broken or not installed here
    └── PatchRefused (rein_sandboxes)    owner POLICY
"""

from rein_bus.errors import RejectedError, TransientError


class GatewayAway(TransientError):
    """The gateway could not be reached, or answered with an error of its own."""


class TaskRefused(RejectedError):
    """Code is `task.<what>`."""


class HarnessRefused(RejectedError):
    """Code is `operator.harness_<what>`."""
