"""The dispatcher's only users of third-party clients and of other libraries' files."""
