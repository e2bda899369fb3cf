"""The `rein` command. Everything it knows about a run it reads from topics and gRPC, like any other client."""
