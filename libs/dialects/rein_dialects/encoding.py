"""Text to token ids with a model's tokenizer, cut at its special tokens so that what prompts share is encoded once.

Special tokens are borders no merge crosses, so the ids of a text are those of its pieces, end to end. Whether that is
so for a tokenizer is tried when it is loaded; where it is not, texts are encoded whole. System prompts and tools,
most of a first prompt, are the same in every rollout of a run: their pieces are kept.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from tokenizers import Tokenizer

#: Pieces up to this length are kept by the thousand (roles, newlines), longer ones by the dozen and only if shared.
_SHORT_CHARS = 64
_NUM_SHORT, _NUM_LONG = 4096, 64
_NUM_PROBED = 64

Ids = tuple[int, ...]


class Encoder:
    """Encodes whole prompts and parts of prompts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in added.items() if token.special}
        longest_first = sorted(self._special, key=len, reverse=True)
        self._border = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
        self._short: Callable[[str], Ids] = lru_cache(_NUM_SHORT)(self._encode)
        self._long: Callable[[str], Ids] = lru_cache(_NUM_LONG)(self._encode)
        if self._border is not None and not self._is_separable():
            self._border = None

    def ids(self, text: str, *, is_shared: bool = False) -> list[int]:
        """`is_shared`: other texts are likely to have long pieces in common with this one."""
        if self._border is None:
            return list(self._encode(text))
        ids: list[int] = []
        for piece in self._border.split(text):
            special = self._special.get(piece)
            if special is not None:
                ids.append(special)
            elif piece:
                ids.extend(self._piece(piece, is_shared=is_shared))
        return ids

    def _piece(self, piece: str, *, is_shared: bool) -> Ids:
        if len(piece) <= _SHORT_CHARS:
            return self._short(piece)
        return self._long(piece) if is_shared else self._encode(piece)

    def _encode(self, text: str) -> Ids:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _is_separable(self) -> bool:
        return all(tuple(self.ids(text)) == self._encode(text) for text in self._probes())

    def _probes(self) -> Iterator[str]:
        for special in list(self._special)[:_NUM_PROBED]:
            yield f"a {special}\n b{special}{special} c\n\n{special}user\nd"
