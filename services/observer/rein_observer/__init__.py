"""The observer: what a run learns and how it fails, live, from the topics alone."""
