"""Rein's error tree. The class decides what a consumer does with the record in hand.

ReinError(code, detail, **context)
├── TransientError   retried in place within a bound, then dead-lettered
│   └── BusTransient
├── RejectedError    dead-lettered, with code and offset
│   └── BusRejected
└── FatalError       the service stops; the orchestrator restarts it
    ├── BusMisconfigured   broker, topic and client settings do not fit (named in the text)
    └── BusFenced          another member took the partition over (the assembler forgets and goes on)

A failed rollout is no error: it is an event with a Failure.
"""


class ReinError(Exception):
    """`code` is stable and dotted; `detail` is one sentence: the thing, the place and the remedy."""

    def __init__(self, code: str, detail: str, **context: object) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.context = context


class TransientError(ReinError):
    """May go well on another try."""


class RejectedError(ReinError):
    """This record can never be handled."""


class FatalError(ReinError):
    """This process cannot go on."""


class BusTransient(TransientError):
    """The broker is away or busy."""


class BusRejected(RejectedError):
    """The broker or its limits refuse this record."""


class BusMisconfigured(FatalError):
    """Cluster, topics and client settings do not fit together."""


class BusFenced(FatalError):
    """Another member owns the partition now."""
