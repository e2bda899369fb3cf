"""The only users of outside clients."""
