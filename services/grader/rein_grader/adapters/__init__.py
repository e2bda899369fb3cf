"""The only users of the libraries that touch disk and sandboxes."""
