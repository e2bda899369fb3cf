"""Fixtures and settings that the tests of every package share."""

from hypothesis import settings

pytest_plugins = ["rein_bus.testing", "rein_cli.testing"]

# A busy machine is no failing property: how long an example takes says nothing here.
settings.register_profile("rein", deadline=None)
settings.load_profile("rein")
