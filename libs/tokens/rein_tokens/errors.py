"""What can be wrong with stored arrays. Faults of a single turn are values (`turns.Flaw`), not exceptions: a bad turn
is set aside and its rollout lives on."""


class BytesDamaged(ValueError):
    """The bytes are not what `pack` or `spill` makes; the text names the array and what is wrong with it."""

    code = "tokens.bytes_damaged"
