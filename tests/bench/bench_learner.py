"""What a learner's step costs over bare tensors: tokens per second of the same packed batch.

The bare loop runs the model forward and backward over the same packed rows with plain cross entropy, and no more: no
ratio, no clipping, no comparison of log-probabilities, no gradient norm, no optimiser. A second figure compares with
the usual way, every row padded to its batch's longest. Rounds alternate; the median counts.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_learner.adapters.school import new_student
from rein_learner.config import TorchSettings
from rein_learner.ports import Lecture
from rein_objectives import PackedRows, TrainRow, pack_rows

VOCAB, HIDDEN, LAYERS, CONTEXT = 4096, 192, 5, 2048
GROUPS, ROLLOUTS = 2, 8
#: As a small policy in a slim harness: a long prompt that a group shares, then short turns.
PROMPT, TURNS, ANSWER, SAMPLE = 700, 3, 60, 40
ROUNDS = 4
MAX_ROW_TOKENS = 4096
LIMIT = 0.9

SPEC = ev.RunSpec(
    name="bench",
    sampling=pb.Sampling(temperature=1.0),
    objective=ev.Objective(
        learning_rate=1e-5, clip_low=0.2, clip_high=0.28, max_grad_norm=1.0, max_row_tokens=MAX_ROW_TOKENS
    ),
)


def save_model(folder: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN * 11 // 4,
        num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // 64,
        num_key_value_heads=HIDDEN // 64,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(folder)  # type: ignore[no-untyped-call]


def make_rows() -> Iterator[TrainRow]:
    random = np.random.default_rng(0)
    for _ in range(GROUPS):
        prompt = random.integers(0, VOCAB, PROMPT)
        for member in range(ROLLOUTS):
            ids, places = prompt, []
            for _ in range(TURNS):
                places.append(np.arange(len(ids), len(ids) + SAMPLE))
                ids = np.concatenate([ids, random.integers(0, VOCAB, SAMPLE + ANSWER)])
            sampled_at = np.concatenate(places)
            logprobs = np.full(len(sampled_at), -8.0, dtype=np.float32)
            yield TrainRow(ids, sampled_at, logprobs, np.ones_like(sampled_at), 0.5 if member % 2 else -0.5)


def bare(model: PreTrainedModel, batches: list[PackedRows]) -> None:
    model.zero_grad(set_to_none=True)
    for batch in batches:
        logits = model(
            input_ids=batch.token_ids_n[None],
            position_ids=batch.position_ids_n[None],
            layout=batch.layout,
            logits_to_keep=batch.predict_at_t,
            use_cache=False,
        ).logits[0]
        torch.autograd.backward(functional.cross_entropy(logits, batch.targets_t))


def padded(model: PreTrainedModel, rows: list[TrainRow]) -> None:
    """Batches of as many tokens, each row padded; logits of every place."""
    model.zero_grad(set_to_none=True)
    num_rows = MAX_ROW_TOKENS // len(rows[0].token_ids)
    for start in range(0, len(rows), num_rows):
        ids = torch.from_numpy(np.stack([row.token_ids for row in rows[start : start + num_rows]]))
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        torch.autograd.backward(functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1)))


def seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def report(metric: str, *, value: float, baseline: float, limit: float) -> None:
    ratio = value / baseline
    figures = {"value": round(value), "unit": "tokens/s", "baseline": round(baseline), "ratio": round(ratio, 3)}
    print(json.dumps({"bench": "learner", "metric": metric, **figures, "limit": limit, "holds": ratio >= limit}))


def main() -> int:
    rows = list(make_rows())
    batches, _ = pack_rows(rows, max_tokens=MAX_ROW_TOKENS)
    num_tokens = sum(len(row.token_ids) for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder))
        SPEC.model = folder
        student = new_student(SPEC, settings=TorchSettings())
        usual = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    lecture = Lecture(rows, [], sum(len(row.sampled_at) for row in rows), 1, {})

    def step() -> None:
        student.study(lecture)
        student.update()

    ways: dict[str, Callable[[], None]] = {
        "step": step,
        "bare": lambda: bare(student.model, batches),
        "padded": lambda: padded(usual, rows),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, work in ways.items():
            took_s = seconds(work)
            if number > 0:  # the first round warms up
                taken[name].append(took_s)
    rate = {name: num_tokens / statistics.median(each) for name, each in taken.items()}
    report("step_vs_bare", value=rate["step"], baseline=rate["bare"], limit=LIMIT)
    report("step_vs_padded_rows", value=rate["step"], baseline=rate["padded"], limit=1.5)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
