"""Errors of this library. Services wrap them into their own `ReinError` leaves.

ValueError
├── HarnessUnknown        no harness of that name; the text lists those there are and where one's own go
├── HarnessBroken         a harness's file cannot be used; the text names file, key and remedy
└── HarnessNotInstalled   its runtime is not on this machine; the text names the command that brings it
"""


class HarnessUnknown(ValueError):
    """Raised for a misspelt name, too."""


class HarnessBroken(ValueError):
    """Raised when the file is read."""


class HarnessNotInstalled(ValueError):
    """Raised before anything is started."""
