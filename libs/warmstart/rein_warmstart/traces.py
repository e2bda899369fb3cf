"""Supervised traces: a whole repair as token ids, with a mask over what the policy itself would have sampled.

Every trace of a form begins with the same tokens (tools, system message), so a batch holds them once as `prefix`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from tokenizers import Tokenizer

from rein_warmstart.forms import INSTRUCTION, Form, Message
from rein_warmstart.rendering import Renderer
from rein_warmstart.repairs import Repair

GENERATION_PROMPT = "<|im_start|>assistant\n"
TURN_END = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Trace:
    """Token ids and what of them is learnt; both parallel."""

    token_ids: list[int]
    is_sampled: list[bool]


def conversation(form: Form, repair: Repair, *, today: date) -> list[Message]:
    """The whole repair as messages."""
    instruction = INSTRUCTION.format(line=repair.line, path=repair.path)
    return [
        *form.opening(instruction, today=today),
        form.call(repair.look),
        form.result(repair.source + form.line_ending),
        form.call(repair.edit),
        form.result(form.no_output),
        form.ending(),
    ]


def pieces(messages: Sequence[Message], *, renderer: Renderer, form: Form) -> list[tuple[str, bool]]:
    """The rendered text cut where sampling begins and ends: (text, is sampled)."""
    cut: list[tuple[str, bool]] = []
    start = 0
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = renderer.text(messages[:number], tools=form.tools, add_generation_prompt=True)
        whole = renderer.text(messages[: number + 1], tools=form.tools)
        end = whole.rindex(TURN_END) + len(TURN_END)
        cut += [(whole[start : len(prompt)], False), (whole[len(prompt) : end], True)]
        start = end
    return cut


def tokenized(parts: Sequence[tuple[str, bool]], *, tokenizer: Tokenizer) -> Trace:
    """Each part is tokenized by itself, as it is at run time: a prompt's end and a sample's start never merge."""
    trace = Trace([], [])
    for text, is_sampled in parts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        trace.token_ids.extend(ids)
        trace.is_sampled.extend([is_sampled] * len(ids))
    return trace


def copy_drill(repair: Repair) -> list[tuple[str, bool]]:
    """The first turn alone, without any harness's texts: where copying is learnt first."""
    instruction = INSTRUCTION.format(line=repair.line, path=repair.path)
    return [
        (f"<|im_start|>user\n{instruction}{TURN_END}\n{GENERATION_PROMPT}", False),
        (f"{repair.look}{TURN_END}", True),
        (f"\n<|im_start|>tool\n{repair.source}{TURN_END}\n{GENERATION_PROMPT}", False),
        (f"{repair.edit}{TURN_END}", True),
    ]
