"""Fixtures every package's tests share."""

pytest_plugins = ["rein_bus.testing"]
