"""The fault factory: from unmodified packages to admitted tasks."""
