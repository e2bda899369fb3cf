"""The only users of third-party clients and of the libraries that touch disk."""
