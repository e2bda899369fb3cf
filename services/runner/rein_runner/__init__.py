"""Runner: a request in, a harness run in a sandbox, a patch out."""
