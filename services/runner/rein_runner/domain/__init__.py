"""Decisions of the runner: pure, sync, no await."""
