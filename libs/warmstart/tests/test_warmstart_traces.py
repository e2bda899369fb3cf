"""The warm start's data: exact forms, aligned masks, repairs whose outcome is left to chance."""

import subprocess
from collections import Counter
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rein_warmstart.forms import FORMS, Form
from rein_warmstart.policy import make_policy
from rein_warmstart.rendering import Renderer
from rein_warmstart.repairs import Repair, RepairSource, alternatives, operators_on, source_lines
from rein_warmstart.tokenizer import train_tokenizer
from rein_warmstart.traces import Trace, conversation, copy_drill, pieces, tokenized
from rein_warmstart.train import IGNORED, loss_of, make_batch

LINES = ["    if a <= b:", "x = a + b", "while n > 0 and m != 3:", "return a // b"]
PATHS = ["json/decoder.py", "email/header.py"]
TODAY = date(2026, 1, 2)


def draw(seed: int) -> Repair:
    return RepairSource(LINES, paths=PATHS, seed=seed).draw()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    renderer = Renderer()
    texts = [renderer.text(conversation(form, draw(seed), today=TODAY)) for form in FORMS for seed in range(50)]
    return train_tokenizer(texts, vocab_size=500)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.harness)
def test_each_longer_conversation_is_rendered_as_a_continuation_of_the_shorter(form: Form) -> None:
    renderer, messages = Renderer(), conversation(form, draw(1), today=TODAY)
    texts = [renderer.text(messages[:end], tools=form.tools) for end in range(1, len(messages) + 1)]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.harness)
def test_arguments_as_text_and_as_a_dictionary_render_alike(form: Form) -> None:
    message = form.call("sed -n '3p' a<b.py")
    text = {
        **message,
        "tool_calls": [{"function": {"name": form.tool, "arguments": '{"command": "sed -n \'3p\' a<b.py"}'}}],
    }
    assert Renderer().text([message]) == Renderer().text([text])


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_a_trace_is_the_whole_rendering_and_exactly_the_assistants_words_are_learnt(seed: int) -> None:
    for form in FORMS:
        renderer, messages = Renderer(), conversation(form, draw(seed), today=TODAY)
        cut = pieces(messages, renderer=renderer, form=form)
        assert renderer.text(messages, tools=form.tools) == "".join(text for text, _ in cut) + "\n"
        learnt = [text for text, is_sampled in cut if is_sampled]
        assert len(learnt) == 3
        assert all(text.endswith("<|im_end|>") and "<|im_start|>" not in text for text in learnt)


def test_ids_and_mask_are_parallel_and_decode_to_the_text(tokenizer: Tokenizer) -> None:
    cut = pieces(conversation(FORMS[0], draw(3), today=TODAY), renderer=Renderer(), form=FORMS[0])
    trace = tokenized(cut, tokenizer=tokenizer)
    assert len(trace.token_ids) == len(trace.is_sampled)
    assert tokenizer.decode(trace.token_ids, skip_special_tokens=False) == "".join(text for text, _ in cut)
    learnt = [token for token, is_sampled in zip(trace.token_ids, trace.is_sampled, strict=True) if is_sampled]
    assert tokenizer.decode(learnt, skip_special_tokens=False) == "".join(text for text, sampled in cut if sampled)


def test_digits_are_tokens_of_their_own(tokenizer: Tokenizer) -> None:
    assert [token for token in tokenizer.encode("1907").tokens if token.isdigit()] == ["1", "9", "0", "7"]


def test_the_new_operator_is_another_of_the_same_kind_and_as_likely_as_any() -> None:
    source = RepairSource(["if a == b:"], paths=PATHS, seed=1)
    chosen = Counter(source.draw().new for _ in range(3000))
    assert set(chosen) == set(alternatives("=="))
    assert max(chosen.values()) < 1.25 * min(chosen.values())


def test_every_piece_of_the_vocabulary_is_copied_many_times() -> None:
    """A piece that the warm start copied a few times is not copied at run time: networkx became nxx."""
    words = [f"{first}{last}" for first in "bcdfg" for last in ("arn", "orm", "ilt", "ump")]
    source = RepairSource(LINES, paths=PATHS, seed=4, word_pieces=words)
    paths = [source.draw().path for _ in range(2000)]
    assert min(sum(word in path for path in paths) for word in words) > 50


def test_the_same_seed_draws_the_same_repairs() -> None:
    first, second = (RepairSource(LINES, paths=PATHS, seed=5, word_pieces=["net"]) for _ in range(2))
    assert [first.draw() for _ in range(50)] == [second.draw() for _ in range(50)]


def test_a_copying_drill_learns_the_look_and_the_edit_and_nothing_else() -> None:
    repair = draw(6)
    learnt = [text for text, is_sampled in copy_drill(repair) if is_sampled]
    assert learnt == [f"{repair.look}<|im_end|>", f"{repair.edit}<|im_end|>"]


def test_the_edit_does_with_real_sed_what_it_says(tmp_path: Path) -> None:
    source = RepairSource(LINES, paths=["a.py"], seed=2, real_share=1.0)
    for _ in range(40):
        repair = source.draw()
        lines = ["# before"] * (repair.line - 1) + [repair.source, "# after"]
        (tmp_path / "a.py").write_text("\n".join(lines) + "\n")
        subprocess.run(repair.edit, shell=True, cwd=tmp_path, check=True)
        changed = (tmp_path / "a.py").read_text().splitlines()
        assert changed[repair.line - 1] == repair.source.replace(f" {repair.wrong} ", f" {repair.new} ", 1)
        assert changed[: repair.line - 1] + changed[repair.line :] == lines[: repair.line - 1] + lines[repair.line :]


def test_source_lines_hold_a_replaceable_operator_and_no_comment(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("# a == b\nx = 1\nif a == b:\n\ty = a + b\nz = a * b\n")
    assert source_lines([tmp_path]) == ["if a == b:"]
    assert operators_on("z = a * b") == []


def test_a_batch_with_its_common_beginning_taken_out_has_the_loss_of_the_whole_rows() -> None:
    torch.manual_seed(0)
    model = make_policy(vocab_size=64, hidden=64, layers=2, eos_token_id=1, pad_token_id=0)
    common = [5, 6, 7, 8]
    rows = [Trace([*common, 9, 10, 11], [False] * 5 + [True] * 2), Trace([*common, 12, 13], [False] * 5 + [True])]
    shared = make_batch(rows, pad_token_id=0)
    assert shared.prefix.tolist() == common
    whole = 0.0
    for row in rows:
        logits = model(torch.tensor([row.token_ids])).logits[0]
        log_probs = torch.log_softmax(logits.float().detach(), dim=-1)
        places = [place for place, is_sampled in enumerate(row.is_sampled) if is_sampled]
        whole -= sum(float(log_probs[place - 1, row.token_ids[place]]) for place in places)
    assert float(loss_of(model, shared).detach()) == pytest.approx(whole / 3, abs=1e-5)
    assert (shared.labels == IGNORED).sum() == 3
