"""The policy's architecture: a shallow, wide Llama with an untied head, in the ordinary Hugging Face folder."""

import json
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

MAX_CONTEXT = 2048


def make_policy(*, vocab_size: int, hidden: int, layers: int, eos_token_id: int, pad_token_id: int) -> LlamaForCausalLM:
    """Random weights. Head size 64: the engine's CPU build refuses smaller ones."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        head_dim=64,
        max_position_embeddings=MAX_CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        dtype="float32",
    )
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]


def save_policy(model: LlamaForCausalLM, folder: Path) -> None:
    model.save_pretrained(folder)
    generation = {"eos_token_id": model.config.eos_token_id, "pad_token_id": model.config.pad_token_id}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
