"""A local stack: one home folder, a broker and the services as processes. State of a stack lives only in its home."""
