"""One module per word after `rein`; each offers a `COMMAND`."""
