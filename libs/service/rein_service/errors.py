"""What can keep a service from starting.

ReinError
└── FatalError
    └── SetupError          configuration or environment does not fit: exit status 2, one line
        └── ConfigRejected  a key or value of the configuration file or environment

Any ReinError that `build` raises ends the process the same way: building is wiring what the configuration names.
"""

from rein_bus.errors import FatalError


class SetupError(FatalError):
    """`detail` is one sentence naming the thing, the place and the remedy."""


class ConfigRejected(SetupError):
    """The configuration cannot be used."""

    def __init__(self, detail: str) -> None:
        super().__init__("config.rejected", detail)
