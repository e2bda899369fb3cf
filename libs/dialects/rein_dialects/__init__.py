"""Wire formats of harnesses on one side, a model's tokens on the other, neutral messages between.

Pure: no I/O beyond reading a model folder once, no knowledge of sessions.
- `anthropic`, `openai_chat`: each module is a `Dialect`: it parses a request and writes an answer, whole or as events.
- `rendering`: messages to token ids by the model's own chat template.
- `samples`: a sample's text to content, reasoning and tool calls.
"""
