"""Decisions of the grader: pure, sync, no await."""
