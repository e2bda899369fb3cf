"""The gateway's errors: what a harness is told, by status.

ReinError
├── RejectedError
│   ├── CallRefused      a 4xx answer in the dialect's own body; trying again is no use
│   └── PromptTooLong    the engine takes no prompt of this length
└── TransientError
    ├── CallDelayed      503 with Retry-After; nothing was handed out
    └── EngineAway       a node does not answer or failed; another one may
"""

from http import HTTPStatus

from rein_bus.errors import RejectedError, TransientError


class CallRefused(RejectedError):
    """`status` is the HTTP status of the answer."""

    def __init__(self, code: str, detail: str, *, status: HTTPStatus) -> None:
        super().__init__(code, detail)
        self.status = status


class PromptTooLong(RejectedError):
    """`detail` is the engine's."""


class CallDelayed(TransientError):
    """`retry_after_s` is what the client is asked to wait."""

    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, code: str, detail: str, *, retry_after_s: int = 2) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class EngineAway(TransientError):
    """Nothing is known of the generation; it may be tried elsewhere."""
