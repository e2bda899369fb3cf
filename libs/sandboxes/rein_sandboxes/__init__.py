"""Running code nobody trusts. The port is in `ports`; `bubblewrap` is its provider, `scripted` its fake."""
