"""Packed rows are computed exactly as each row alone, forwards and backwards, shared beginnings included."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

from rein_objectives import PackedRows, TrainRow, pack_rows, packed_attention, token_logprobs
from rein_objectives.layout import MIN_SHARED, laid_out

VOCAB = 97


def row(ids: Sequence[int], *, trained: Sequence[int], advantage: float = 1.0) -> TrainRow:
    return TrainRow(
        token_ids=np.array(ids, dtype=np.int64),
        sampled_at=np.array(trained, dtype=np.int64),
        logprobs=-np.arange(1, len(trained) + 1, dtype=np.float32),
        versions=np.ones(len(trained), dtype=np.int64),
        advantage=advantage,
    )


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    AttentionInterface.register("rein_packed", packed_attention)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=256,
    )
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.set_attn_implementation("rein_packed")
    return model


def run(model: LlamaForCausalLM, batch: PackedRows) -> torch.Tensor:
    logits = model(
        input_ids=batch.token_ids_n[None],
        position_ids=batch.position_ids_n[None],
        layout=batch.layout,
        logits_to_keep=batch.predict_at_t,
        use_cache=False,
    ).logits[0]
    return token_logprobs(logits, targets_t=batch.targets_t, temperature=0.7)


def gradient(model: LlamaForCausalLM, batches: list[PackedRows]) -> list[torch.Tensor]:
    model.zero_grad()
    for batch in batches:
        (run(model, batch) * batch.advantages_t).sum().backward()  # type: ignore[no-untyped-call]
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def rows_of_groups(*, seed: int) -> list[TrainRow]:
    """Two groups with long common prompts, forks inside the samples, a repeated row, a row that begins another."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(2):
        prompt = random.integers(0, VOCAB, 40).tolist()
        middle = random.integers(0, VOCAB, 24).tolist()
        tails = [random.integers(0, VOCAB, length).tolist() for length in (5, 9, 1, 17)]
        whole = [prompt + tails[0], prompt + middle + tails[1], prompt + middle + tails[2], prompt + middle, prompt]
        whole += [whole[0], tails[3]]
        for number, ids in enumerate(whole):
            trained = sorted(random.choice(np.arange(1, len(ids)), size=min(6, len(ids) - 1), replace=False).tolist())
            rows.append(row(ids, trained=trained, advantage=float(number) - 2.5))
    return rows


@pytest.mark.parametrize("max_tokens", [80, 150, 10_000])
def test_packed_logprobs_and_gradients_are_those_of_one_row_at_a_time(model: LlamaForCausalLM, max_tokens: int) -> None:
    rows = rows_of_groups(seed=1)
    alone = [batch for each in rows for batch in pack_rows([each], max_tokens=10_000)[0]]
    packed, num_cut = pack_rows(rows, max_tokens=max_tokens)
    assert num_cut == 0
    assert len(packed) < len(rows)
    wanted, found = (torch.cat([run(model, batch) for batch in batches]) for batches in (alone, packed))
    assert torch.equal(torch.cat([b.targets_t for b in alone]), torch.cat([b.targets_t for b in packed]))
    assert (wanted - found).abs().max().item() < 1e-5
    for one, other in zip(gradient(model, alone), gradient(model, packed), strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


def test_rows_alone_agree_with_the_models_own_attention(model: LlamaForCausalLM) -> None:
    ids = rows_of_groups(seed=2)[1].token_ids
    (batch,), _ = pack_rows([row(ids.tolist(), trained=range(1, len(ids)))], max_tokens=1000)
    found = run(model, batch)
    model.set_attn_implementation("sdpa")
    try:
        logits = model(input_ids=torch.from_numpy(ids)[None]).logits[0, :-1]
    finally:
        model.set_attn_implementation("rein_packed")
    wanted = token_logprobs(logits, targets_t=torch.from_numpy(ids[1:]), temperature=0.7)
    assert (wanted - found).abs().max().item() < 1e-5


def test_what_rows_share_is_laid_out_once() -> None:
    prompt = list(range(50))
    (batch,), _ = pack_rows([row([*prompt, 60 + n], trained=[50]) for n in range(8)], max_tokens=100)
    assert batch.layout.num_places == 50 + 8
    assert batch.num_row_tokens == 8 * 51
    assert batch.predict_at_t.tolist() == [49] * 8


_rows = st.lists(
    st.lists(st.integers(0, 1), min_size=0, max_size=6).map(
        lambda forks: [token for fork in forks for token in [fork, *range(2, MIN_SHARED)]]
    ),
    min_size=1,
    max_size=6,
).map(lambda rows: [np.array([7, *each], dtype=np.int64) for each in rows])


@settings(deadline=None)
@given(_rows)
def test_every_row_can_be_read_back_from_its_places(rows: list[np.ndarray]) -> None:
    layout = laid_out(rows)
    tokens = np.full(layout.num_places, -1)
    for ids, places in zip(rows, layout.places, strict=True):
        assert len(places) == len(ids)
        assert layout.depth[places].tolist() == list(range(len(ids)))
        assert all(old in (-1, new) for old, new in zip(tokens[places], ids, strict=True))
        tokens[places] = ids
    assert (tokens >= 0).all()
    assert [piece.start for piece in layout.pieces[1:]] == [piece.end for piece in layout.pieces[:-1]]


def test_a_row_longer_than_a_batch_is_cut_and_what_it_loses_is_counted() -> None:
    batches, num_cut = pack_rows([row(range(50), trained=[10, 19, 20, 49])], max_tokens=20)
    assert [batch.targets_t.tolist() for batch in batches] == [[10, 19]]
    assert num_cut == 2


def test_attention_without_a_layout_or_with_a_window_is_refused() -> None:
    states = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError, match="layout"):
        packed_attention(torch.nn.Module(), states, states, states, None)
    with pytest.raises(ValueError, match="window"):
        packed_attention(
            torch.nn.Module(),
            states,
            states,
            states,
            None,
            layout=laid_out([np.zeros(2, dtype=np.int64)]),
            sliding_window=1,
        )
