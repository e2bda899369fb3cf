"""Which version which node should hold, and when they switch. Pure."""
