"""The demo's policy: its tokenizer, and a warm start that knows the form of a repair but not which repair is right.

`python -m rein_warmstart --out DIR` makes the folder that the demo ships; `measure` says what it can do.
"""
