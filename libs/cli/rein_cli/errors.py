"""What a command cannot go on from; `main` prints `detail` as one line and ends with status 2.

ReinError
└── FatalError
    ├── CannotDo            an argument, a file or the machine does not fit
    └── ServiceUnreachable  nobody answers at that address
"""

from rein_bus.errors import FatalError


class CannotDo(FatalError):
    """`detail` names the thing, the place and the remedy."""


class ServiceUnreachable(FatalError):
    """A gRPC call found nobody."""

    def __init__(self, what: str, *, address: str, reason: str) -> None:
        detail = f"{what} at {address} does not answer ({reason}); is the stack up? See rein status, or start rein up"
        super().__init__("rpc.unreachable", detail, address=address)
