"""A folder or port that does not fit is named before vLLM is started."""

import json
import socket
from pathlib import Path

import pytest

from rein_inference.adapters.model import check_model, check_port
from rein_service import SetupError


def make_folder(folder: Path, *, without: str = "") -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
    files = {"config.json": json.dumps(config), "model.safetensors": "x", "tokenizer.json": "{}"}
    for name, text in files.items():
        if name != without:
            (folder / name).write_text(text)
    return folder


def test_a_whole_folder_passes(tmp_path: Path) -> None:
    check_model(make_folder(tmp_path), max_context_tokens=4096)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_what_is_missing_is_named_with_its_place_and_a_remedy(tmp_path: Path, missing: str) -> None:
    with pytest.raises(SetupError, match="key model") as error:
        check_model(make_folder(tmp_path, without=missing), max_context_tokens=4096)
    assert str(tmp_path) in error.value.detail
    assert ";" in error.value.detail


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="does not exist"):
        check_model(tmp_path / "nowhere", max_context_tokens=1)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_config_that_is_none(tmp_path: Path, text: str) -> None:
    (make_folder(tmp_path) / "config.json").write_text(text)
    with pytest.raises(SetupError, match=r"config\.json"):
        check_model(tmp_path, max_context_tokens=1)


def test_a_context_longer_than_the_models(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="lower"):
        check_model(make_folder(tmp_path), max_context_tokens=8192)


def test_a_taken_port() -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        with pytest.raises(SetupError, match="stop its owner"):
            check_port("127.0.0.1", port=owner.getsockname()[1])
