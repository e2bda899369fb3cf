"""A model folder without a model: tokenizer and chat template small enough to be made inside a test or a benchmark."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

#: Plain ChatML with Hermes tool calls; incremental.
CHATML = """\
{%- if tools %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

#: Forgets reasoning of earlier turns and pads the last one, as Qwen3's does: never a prefix of itself.
FORGETFUL = """\
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and loop.index0 > ns.last %}
{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}
{%- endif %}{{ message.content.split('</think>')[-1] + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

#: Moves every system message to the front: what comes later changes what was there before.
HOISTING = """\
{%- for message in messages if message.role == 'system' %}
{{- '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- for message in messages if message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

_CORPUS = (
    "You are a helpful agent. Repair the code with the Bash tool; hello hello yellow fellow.\n"
    '<tool_call>\n{"name": "Bash", "arguments": {"command": "sed -n 2p src/package/module.py"}}\n</tool_call>\n'
    "if a <= b: return sorted(values, key=lambda each: each.name)\n"
)


def make_policy(
    folder: Path, *, template: str = CHATML, corpus: Sequence[str] = (_CORPUS,), vocab_size: int = 400
) -> Path:
    """Write the folder; the same arguments always give the same ids."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=vocab_size, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
