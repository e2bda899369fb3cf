"""What the checks say of a machine: found, place, remedy."""

import json
import socket
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from rein_cli import checks


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The smallest folder that counts as a model."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    save_file({"weight": np.zeros(2, np.float32)}, tmp_path / "model.safetensors")
    return tmp_path


def test_a_whole_model_is_described(model: Path) -> None:
    check = checks.model(model)
    assert check.is_ok
    assert "LlamaForCausalLM, 1 tensors, 2 tokens" in check.found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", None),
        ("config.json", "{}"),
        ("config.json", "nonsense"),
        ("tokenizer.json", None),
        ("tokenizer.json", "[]"),
        ("model.safetensors", None),
        ("model.safetensors", "cut"),
    ],
)
def test_a_damaged_model_is_named_with_the_remedy(model: Path, file: str, text: str | None) -> None:
    if text is None:
        (model / file).unlink()
    else:
        (model / file).write_text(text)
    check = checks.model(model)
    assert not check.is_ok
    assert str(model) in check.found
    assert "--model" in check.remedy


def test_a_missing_model_folder_is_named(tmp_path: Path) -> None:
    check = checks.model(tmp_path / "nowhere")
    assert not check.is_ok
    assert "nowhere" in check.found


def test_a_taken_port_is_named_with_its_purpose() -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        port = owner.getsockname()[1]
        (check,) = checks.ports([("the page", port)])
    assert not check.is_ok
    assert f"port {port} for the page is taken" in check.found
    assert "--port-offset" in check.remedy


def test_too_little_memory_or_disk_is_named_with_both_numbers(tmp_path: Path) -> None:
    for check in (checks.memory(needed_gib=1e6), checks.disk(tmp_path / "not" / "yet", needed_gib=1e6)):
        assert not check.is_ok
        assert "1000000.0" in check.found
        assert check.remedy
    assert checks.memory(needed_gib=0).is_ok
