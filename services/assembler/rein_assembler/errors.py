"""The assembler's errors: none of its own.

ReinError
├── TransientError
│   └── BlobUnavailable   retried in place within a bound, then the service stops and is restarted
└── FatalError
    └── BusFenced         the partition is forgotten and read again from its checkpoint

A turn whose blob is missing or damaged is set aside by name; a group that cannot be trained on is an event.
"""
