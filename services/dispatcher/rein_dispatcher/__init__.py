"""The dispatcher: decides which task, group and attempt runs next, and when a run is over."""
