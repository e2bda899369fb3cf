"""What can go wrong with a blob.

ReinError
├── TransientError
│   └── BlobUnavailable  the store did not answer
└── RejectedError
    ├── BlobMissing      the store has no such blob
    └── BlobDamaged      stored bytes do not have the digest they are filed under
"""

from rein_bus.errors import RejectedError, TransientError


class BlobUnavailable(TransientError):
    """The store could not be reached or refused."""


class BlobMissing(RejectedError):
    """Not in this store; the text names the digest and the store."""


class BlobDamaged(RejectedError):
    """The bytes are not those that were stored."""
