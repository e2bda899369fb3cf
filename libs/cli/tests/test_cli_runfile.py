"""A run's file: every mistake names key, file and remedy; what is left out has a sensible value."""

from pathlib import Path

import pytest

from rein_cli.runfile import load_run
from rein_service.errors import ConfigRejected

MINIMAL = 'name = "r"\ntask_set = "tasks"\nmodel = "model"\nsteps = 3\n[harnesses]\nclaude-code = 1.0\n'


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "run.toml").write_text(text)
    return tmp_path / "run.toml"


def test_the_least_a_file_says_makes_a_run_with_paths_beside_it(tmp_path: Path) -> None:
    spec = load_run(write(tmp_path, MINIMAL))
    assert (spec.name, spec.steps, spec.group_size) == ("r", 3, 8)
    assert spec.task_set == str(tmp_path / "tasks")
    assert [(share.harness, share.weight) for share in spec.harnesses] == [("claude-code", 1.0)]
    assert spec.sampling.temperature == 1.0
    assert spec.objective.min_correlation == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (MINIMAL.replace("steps", "stepps"), ["'stepps'", "did you mean 'steps'?"]),
        (f"{MINIMAL}[sampling]\ntemprature = 1\n", ["'sampling.temprature'", "'temperature'"]),
        (MINIMAL.replace("steps = 3\n", ""), ["'steps' is missing", "Learner steps."]),
        (MINIMAL.replace("steps = 3", 'steps = "many"'), ["'steps'", "'many'"]),
    ],
)
def test_a_mistake_names_key_file_and_remedy(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigRejected) as caught:
        load_run(write(tmp_path, text))
    assert all(part in caught.value.detail for part in [*parts, "run.toml"]), caught.value.detail


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigRejected, match=r"nowhere\.toml"):
        load_run(tmp_path / "nowhere.toml")
