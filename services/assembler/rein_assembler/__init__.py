"""Joins the events of a group's rollouts into training data, exactly once."""
