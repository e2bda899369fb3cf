"""Wire formats of harnesses on one side, a model's tokens on the other, neutral messages between.

Pure: no I/O beyond reading a model folder once, no knowledge of sessions. A dialect parses a request and writes an
answer, whole or as server-sent events; `rendering` turns messages into token ids, `hermes` turns sampled text back.
"""
