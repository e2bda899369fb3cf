"""Supervised warm start on the CPU: first short copying drills, then whole repairs in the harnesses' own prompts.

The part all traces of a form share is run once per step, with gradient, and its keys and values are expanded over
the batch; this is exact and saves about half of the work.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, LlamaForCausalLM

from rein_warmstart.forms import FORMS, Form
from rein_warmstart.rendering import Renderer
from rein_warmstart.repairs import RepairSource
from rein_warmstart.traces import Trace, conversation, copy_drill, pieces, tokenized

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Schedule:
    """Length and pace of the warm start."""

    drill_steps: int = 500
    """Steps on copying drills."""
    steps: int = 900
    """Steps on whole repairs."""
    batch: int = 32
    """Traces per step; drills are shorter and come half as many again."""
    learning_rate: float = 1.5e-3
    warmup_steps: int = 60

    @property
    def total_steps(self) -> int:
        return self.drill_steps + self.steps

    def rate(self, step: int) -> float:
        """Linear warm-up, then cosine down to a twentieth."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.total_steps))
        return self.learning_rate * warm * (0.05 + 0.95 * cosine)


@dataclass(frozen=True, slots=True)
class Batch:
    """token_ids and labels [B, T], padded on the right; prefix [P] stands before every row."""

    prefix: Tensor
    token_ids: Tensor
    labels: Tensor
    is_padding: Tensor


def make_batch(traces: Sequence[Trace], *, pad_token_id: int) -> Batch:
    """Rows of the traces, their common beginning taken out."""
    shared = _shared_length(traces)
    longest = max(len(trace.token_ids) for trace in traces) - shared
    token_ids = torch.full((len(traces), longest), pad_token_id)
    labels = torch.full((len(traces), longest), IGNORED)
    is_padding = torch.ones((len(traces), longest), dtype=torch.bool)
    for row, trace in enumerate(traces):
        ids = torch.tensor(trace.token_ids[shared:])
        token_ids[row, : len(ids)] = ids
        is_padding[row, : len(ids)] = False
        mask = torch.tensor(trace.is_sampled[shared:])
        labels[row, : len(ids)] = torch.where(mask, ids, IGNORED)
    return Batch(torch.tensor(traces[0].token_ids[:shared]), token_ids, labels, is_padding)


def loss_of(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Mean cross-entropy of the sampled tokens, nats."""
    cache, num_prefix = None, len(batch.prefix)
    if num_prefix:
        cache = DynamicCache(config=model.config)
        model.model(batch.prefix[None], past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(batch.token_ids))
    mask = torch.cat([torch.ones(len(batch.token_ids), num_prefix, dtype=torch.bool), ~batch.is_padding], dim=1)
    hidden = model.model(
        batch.token_ids, past_key_values=cache, attention_mask=mask.long(), use_cache=cache is not None
    ).last_hidden_state
    wanted = batch.labels[:, 1:] != IGNORED
    logits = model.lm_head(hidden[:, :-1][wanted])
    return cross_entropy(logits.float(), batch.labels[:, 1:][wanted])


def batches(
    tokenizer: Tokenizer, source: RepairSource, *, schedule: Schedule, seed: int, pad_token_id: int, first: int = 0
) -> Iterator[Batch]:
    """Every step's batch from step `first` on, in order."""
    random, renderer = Random(seed), Renderer()
    for step in range(first, schedule.total_steps):
        if step < schedule.drill_steps:
            parts = [copy_drill(source.draw()) for _ in range(schedule.batch * 3 // 2)]
        else:
            form = FORMS[step % len(FORMS)]
            parts = [_repair_parts(form, source, random, renderer) for _ in range(schedule.batch)]
        yield make_batch([tokenized(part, tokenizer=tokenizer) for part in parts], pad_token_id=pad_token_id)


def warm_start(
    model: LlamaForCausalLM,
    batch_source: Iterator[Batch],
    *,
    schedule: Schedule,
    report: Callable[[int, float, float], None],
    first: int = 0,
) -> None:
    """Train in place from step `first` on; `report` gets step, loss and tokens per second now and then."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    started_s, num_tokens = time.perf_counter(), 0
    for step, batch in enumerate(batch_source, start=first):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        loss = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        num_tokens += int((~batch.is_padding).sum())
        if step % 25 == 0 or step == schedule.total_steps - 1:
            report(step, float(loss.detach()), num_tokens / (time.perf_counter() - started_s))
    model.train(False)


def _repair_parts(form: Form, source: RepairSource, random: Random, renderer: Renderer) -> list[tuple[str, bool]]:
    today = date(2025, 1, 1) + timedelta(days=random.randrange(1500))
    return pieces(conversation(form, source.draw(), today=today), renderer=renderer, form=form)


def _shared_length(traces: Sequence[Trace]) -> int:
    """Tokens that all traces begin with; none of them is sampled."""
    first, last = min(t.token_ids for t in traces), max(t.token_ids for t in traces)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return length
