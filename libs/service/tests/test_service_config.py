"""Configuration: file under environment, every mistake one line with thing, place and remedy, secrets never shown."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, SecretStr

from rein_service import ServiceConfig
from rein_service.config import load_config, redacted_toml
from rein_service.errors import ConfigRejected


class Engine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    url: str = "http://127.0.0.1:9710"
    """Where it answers."""


class DemoConfig(ServiceConfig):
    """Something of each kind."""

    folder: Path
    """Folder of the model."""

    engines: tuple[Engine, ...] = ()
    """All of them."""

    secret: SecretStr = SecretStr("quiet")
    """Signs grants."""


def load(tmp_path: Path, text: str) -> DemoConfig:
    file = tmp_path / "demo.toml"
    file.write_text(text)
    return load_config(DemoConfig, service="demo", file=file)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigRejected) as caught:
        load(tmp_path, text)
    assert "\n" not in caught.value.detail
    return caught.value.detail


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REIN_DEMO__KAFKA__SERVERS", "other:1")
    config = load(tmp_path, 'folder = "m"\ndrain_s = 3\n[kafka]\nservers = "here:1"\nprefix = "p"\n')
    assert (config.kafka.servers, config.kafka.prefix, config.drain_s) == ("other:1", "p", 3.0)


def test_building_a_configuration_in_code_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTANCE", "stray")
    monkeypatch.setenv("FOLDER", "stray")
    config = DemoConfig(folder=Path("m"))
    assert config.instance != "stray"
    assert config.folder == Path("m")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('foldr = "m"', ["unknown key 'foldr'", "demo.toml", "did you mean 'folder'?"]),
        ('folder = "m"\n[kafka]\nservrs = "x"', ["'kafka.servrs'", "demo.toml", "'servers'"]),
        ('folder = "m"\n[[engines]]\nurk = "x"', ["'engines.0.urk'", "'url'"]),
        ("drain_s = 1", ["'folder' is missing", "demo.toml", "Folder of the model."]),
        ('folder = "m"\ndrain_s = "soon"', ["'drain_s'", "'soon'", "demo.toml"]),
        ("folder = ", ["demo.toml is not TOML"]),
    ],
)
def test_a_mistake_in_the_file_names_key_file_and_remedy(tmp_path: Path, text: str, parts: list[str]) -> None:
    detail = refusal(tmp_path, text)
    assert all(part in detail for part in parts), detail


@pytest.mark.parametrize(
    ("variable", "parts"),
    [
        ("REIN_DEMO__FOLDR", ["'foldr'", "REIN_DEMO__FOLDR", "'folder'"]),
        ("REIN_DEMO__KAFKA__SERVRS", ["'kafka.servrs'", "REIN_DEMO__KAFKA__SERVRS", "'servers'"]),
        ("REIN_DEMO__DRAIN_S", ["'drain_s'", "REIN_DEMO__DRAIN_S"]),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, parts: list[str]
) -> None:
    monkeypatch.setenv(variable, "x")
    detail = refusal(tmp_path, 'folder = "m"')
    assert all(part in detail for part in parts), detail


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigRejected, match=r"nowhere\.toml"):
        load_config(DemoConfig, service="demo", file=tmp_path / "nowhere.toml")


@settings(max_examples=25, deadline=None)
@given(secret=st.text(min_size=8).filter(lambda text: text.strip("*")), drain_s=st.floats(0, 1e6))
def test_a_shown_configuration_loads_again_and_hides_secrets(secret: str, drain_s: float) -> None:
    config = DemoConfig(folder=Path("m"), secret=SecretStr(secret), drain_s=drain_s, engines=(Engine(),))
    shown = tomllib.loads(redacted_toml(config))
    assert set(shown.pop("secret")) == {"*"}
    assert DemoConfig(secret=SecretStr(secret), **shown) == config
