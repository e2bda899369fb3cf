"""The only users of torch models, files and outside clients."""
