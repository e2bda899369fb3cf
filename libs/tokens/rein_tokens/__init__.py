"""Token truth as arrays: what a turn holds, which turns make one token sequence, how sequences become bytes.

- `turns`: one `TurnCaptured` as checked arrays; a turn whose arrays do not fit together is set aside, with a code.
- `segments`: the turns of one attempt as sequences in which every sampled token trains at most once.
- `packing`: the segments of a group to and from bytes.
- `spill`: the arrays of one large turn to and from bytes.

Pure: numpy, no files, no network. Nothing here decodes, encodes or renders text, and nothing here makes up a
log-probability.
"""

from rein_tokens.errors import BytesDamaged
from rein_tokens.packing import PackedGroup, Row, pack, unpack
from rein_tokens.segments import Segment, Segmented, segments_of
from rein_tokens.spill import TurnArrays, spill, unspill
from rein_tokens.turns import Flaw, Turn, turn_of

__all__ = [
    "BytesDamaged",
    "Flaw",
    "PackedGroup",
    "Row",
    "Segment",
    "Segmented",
    "Turn",
    "TurnArrays",
    "pack",
    "segments_of",
    "spill",
    "turn_of",
    "unpack",
    "unspill",
]
