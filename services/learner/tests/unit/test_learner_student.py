"""A student with a tiny real model: what it learns, measures, stores and exports."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_learner.adapters.school import TorchSchool, new_student
from rein_learner.adapters.torch_student import TorchStudent
from rein_learner.config import TorchSettings
from rein_learner.errors import ModelUnusable
from rein_learner.ports import Lecture
from rein_objectives import TrainRow
from rein_transfer.manifest import digest_of

VOCAB = 256


def make_model(folder: Path, *, is_tied: bool = False) -> Path:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=256,
        tie_word_embeddings=is_tied,
        initializer_range=0.1,
        dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), is_tied=request.param)


def make_spec(folder: Path, *, temperature: float = 1.0, learning_rate: float = 1e-3) -> ev.RunSpec:
    return ev.RunSpec(
        name="r",
        model=str(folder),
        sampling=pb.Sampling(temperature=temperature),
        objective=ev.Objective(
            learning_rate=learning_rate, clip_low=0.2, clip_high=0.3, max_grad_norm=1.0, max_row_tokens=64
        ),
    )


@pytest.fixture
def student(folder: Path) -> TorchStudent:
    return enrolled(make_spec(folder))


def enrolled(spec: ev.RunSpec) -> TorchStudent:
    return new_student(spec, settings=TorchSettings(min_agreement_tokens=4))


def reference(folder: Path, ids: np.ndarray, *, temperature: float = 1.0) -> np.ndarray:
    """Log-probabilities of ids 1..n-1 from an ordinary forward pass."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(ids)[None]).logits[0, :-1] / temperature
    picked = torch.log_softmax(logits, -1).gather(-1, torch.from_numpy(ids[1:])[:, None])[:, 0]
    return np.asarray(picked.numpy())


def rows(folder: Path, *, temperature: float = 1.0, version: int = 1, noise: float = 0.0) -> list[TrainRow]:
    """Two rows as an engine would have recorded them; the first with a good reward, the second with a bad one."""
    random = np.random.default_rng(0)
    prompt = random.integers(0, VOCAB, 20)
    found = []
    for advantage in (0.5, -0.5):
        ids = np.concatenate([prompt, random.integers(0, VOCAB, 10)])
        logprobs = reference(folder, ids, temperature=temperature)[19:]
        logprobs = logprobs + noise * random.standard_normal(len(logprobs)).astype(np.float32)
        found.append(TrainRow(ids, np.arange(20, 30), logprobs, np.full(10, version), advantage))
    return found


def lecture(rows: list[TrainRow], *, version: int = 1, past: dict[int, Path] | None = None) -> Lecture:
    return Lecture(rows, [], sum(len(row.sampled_at) for row in rows), version, past or {})


def test_what_was_sampled_agrees_with_what_is_recomputed(student: TorchStudent, folder: Path) -> None:
    studied = student.study(lecture(rows(folder)))
    assert studied.agreement is not None
    assert studied.agreement.num_tokens == 20
    assert studied.agreement.correlation > 0.999999
    assert studied.agreement.max_gap < 1e-4
    assert studied.clip_fraction == 0
    assert studied.loss == pytest.approx(0, abs=1e-5)


def test_at_another_temperature_too(folder: Path) -> None:
    """Case D1."""
    student = enrolled(make_spec(folder, temperature=0.6))
    studied = student.study(lecture(rows(folder, temperature=0.6)))
    assert studied.agreement is not None
    assert studied.agreement.max_gap < 1e-4


def test_a_row_recorded_under_other_probabilities_shows(student: TorchStudent, folder: Path) -> None:
    studied = student.study(lecture(rows(folder, noise=1.0)))
    assert studied.agreement is not None
    assert studied.agreement.correlation < 0.9


def test_an_update_makes_good_rows_likelier_and_bad_ones_less_likely(student: TorchStudent, folder: Path) -> None:
    good, bad = rows(folder)
    for _ in range(3):
        student.study(lecture([good, bad]))
        student.update()
    student.model.save_pretrained(folder / "later")
    later = folder / "later"
    assert reference(later, good.token_ids)[19:].mean() > good.logprobs.mean()
    assert reference(later, bad.token_ids)[19:].mean() < bad.logprobs.mean()


def test_studying_alone_changes_nothing(student: TorchStudent, folder: Path, tmp_path: Path) -> None:
    before = student.write(tmp_path).weights_digest
    student.study(lecture(rows(folder)))
    assert student.write(tmp_path).weights_digest == before


def test_tokens_of_an_older_version_are_compared_under_its_weights(
    student: TorchStudent, folder: Path, tmp_path: Path
) -> None:
    student.write(tmp_path)
    sampled = rows(folder, version=1)
    for _ in range(5):
        student.study(lecture(sampled))
        student.update()
    old = {1: tmp_path / "model.safetensors"}
    weights = student.write(tmp_path / "..").weights_digest
    agreement = student.study(lecture(sampled, version=6, past=old)).agreement
    assert agreement is not None
    assert agreement.correlation > 0.999999
    assert agreement.max_gap < 1e-4
    assert student.write(tmp_path / "..").weights_digest == weights
    assert student.study(lecture(sampled, version=6)).agreement is None


def test_too_few_tokens_are_not_correlated(student: TorchStudent, folder: Path) -> None:
    few = [row.cut(21) for row in rows(folder)]
    assert student.study(lecture(few)).agreement is None


def test_rows_without_signal_still_serve_to_compare(student: TorchStudent, folder: Path) -> None:
    studied = student.study(Lecture([], rows(folder), 0, 1, {}))
    assert (studied.loss, studied.grad_norm) == (0, 0)
    assert studied.agreement is not None
    assert studied.agreement.num_tokens == 20


def test_a_restored_student_goes_on_exactly_as_the_first_would_have(
    student: TorchStudent, folder: Path, tmp_path: Path
) -> None:
    sampled = rows(folder)
    student.study(lecture(sampled))
    student.update()
    student.write(tmp_path)
    student.study(lecture(sampled))
    student.update()
    wanted = student.write(tmp_path / "..").weights_digest
    student.restore(tmp_path)
    student.study(lecture(sampled))
    student.update()
    assert student.write(tmp_path / "..").weights_digest == wanted


def test_the_probe_is_what_any_engine_must_find(student: TorchStudent, folder: Path, tmp_path: Path) -> None:
    written = student.write(tmp_path)
    wanted = reference(folder, np.array(written.probe.token_ids, dtype=np.int64))
    assert list(written.probe.logprobs) == pytest.approx(wanted.tolist(), abs=1e-4)
    assert written.probe.tolerance > 0
    assert written.weights_digest == digest_of(tmp_path / "model.safetensors")


async def test_an_exported_policy_is_an_ordinary_model_folder(folder: Path, tmp_path: Path) -> None:
    async with TorchSchool(TorchSettings(threads=1)) as school:
        student = await school.enrol(make_spec(folder))
        for _ in range(2):  # the second replaces the first
            await student.export(tmp_path / "final")
    ids = np.arange(12)
    assert np.allclose(reference(folder, ids), reference(tmp_path / "final", ids))
    assert (tmp_path / "final" / "chat_template.jinja").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    folder = make_model(tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    return folder


async def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path: Path, damaged: Path) -> None:
    async with TorchSchool(TorchSettings(threads=1)) as school:
        for folder in (tmp_path / "missing", tmp_path, damaged):
            with pytest.raises(ModelUnusable, match=folder.name):
                await school.enrol(make_spec(folder))
