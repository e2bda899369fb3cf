"""The stack's own broker, or the check of somebody else's."""
