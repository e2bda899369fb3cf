"""The observer's errors.

ReinError
└── FatalError
    └── PagePortTaken   another process listens on the page's port
"""

from rein_bus.errors import FatalError


class PagePortTaken(FatalError):
    def __init__(self, host: str, *, port: int) -> None:
        detail = f"cannot listen on {host}:{port}; stop what uses it or set page.port"
        super().__init__("observer.page_port", detail, port=port)
