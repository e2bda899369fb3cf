"""The gateway's only users of HTTP."""
