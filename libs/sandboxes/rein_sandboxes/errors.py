"""What can go wrong around a sandbox. What goes wrong *inside* one is no error but a `SandboxResult`.

ReinError
├── TransientError
│   └── SandboxFailed      this one could not be started, watched or ended; its work says nothing about the policy
├── RejectedError
│   └── PatchRefused       the tree an agent left has no acceptable patch: the agent's doing
└── FatalError
    └── SandboxesUnusable  no sandbox can be made on this machine; the text names what is missing and the remedy
"""

from rein_bus.errors import FatalError, RejectedError, TransientError


class SandboxFailed(TransientError):
    """Code is `sandbox.<what>`."""


class SandboxesUnusable(FatalError):
    """Raised when a provider opens, never in the middle of work."""


class PatchRefused(RejectedError):
    """Code is `policy.patch_<what>`."""
