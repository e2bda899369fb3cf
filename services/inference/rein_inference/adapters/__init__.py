"""The engine's process and its HTTP interface, shared memory, the model's folder."""
