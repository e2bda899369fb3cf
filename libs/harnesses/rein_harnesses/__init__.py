"""Coding harnesses as data: what is installed, how each is started, which dialect it speaks."""

from rein_harnesses.catalog import harness_names, load_harness
from rein_harnesses.errors import HarnessBroken, HarnessNotInstalled, HarnessUnknown
from rein_harnesses.model import RUNTIME, Command, Harness

__all__ = [
    "RUNTIME",
    "Command",
    "Harness",
    "HarnessBroken",
    "HarnessNotInstalled",
    "HarnessUnknown",
    "harness_names",
    "load_harness",
]
