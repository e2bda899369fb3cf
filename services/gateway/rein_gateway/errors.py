"""The gateway's errors: what a harness is told, by status.

ReinError
├── RejectedError
│   └── CallRefused     a 4xx answer in the dialect's own body
└── TransientError
    └── CallDelayed     503 with Retry-After: the harness may try again
"""

from http import HTTPStatus

from rein_bus.errors import RejectedError, TransientError


class CallRefused(RejectedError):
    """`status` is the HTTP status of the answer."""

    def __init__(self, code: str, detail: str, *, status: HTTPStatus) -> None:
        super().__init__(code, detail)
        self.status = status


class CallDelayed(TransientError):
    """Nothing was recorded; another try may go well."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
