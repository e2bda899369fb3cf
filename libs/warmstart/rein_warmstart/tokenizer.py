"""The policy's tokenizer: byte-level BPE, digits one by one, so that numbers are copied digit by digit."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from rein_warmstart.rendering import TEMPLATE

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
_WORDS = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(_WORDS), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL[:3]],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Not special: the text of a tool call must survive decoding without special tokens.
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in SPECIAL[3:]])
    return tokenizer


def word_pieces(tokenizer: Tokenizer) -> list[str]:
    """Tokens made of letters, without the blank before them; sorted, without repetition."""
    texts = {tokenizer.decode([number]).strip() for number in range(tokenizer.get_vocab_size())}
    return sorted(text for text in texts if text.isalpha() and text.isascii())


def save_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_context: int) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja, as transformers and vLLM read them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_context,
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
