"""Harness files: those shipped load, one's own win, and what is wrong with a file is said."""

from pathlib import Path

import pytest

from rein_harnesses import HarnessBroken, HarnessNotInstalled, HarnessUnknown, harness_names, load_harness
from rein_harnesses.install import installed_runtime, main

OWN = """about = "mine"
version = "1"
dialect = "openai.chat"
exit_status = "none"
argv = ["/bin/mine", "{instruction}"]
"""


def own(folder: Path, text: str, *, name: str = "mine") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "harness.toml").write_text(text)
    return folder


@pytest.mark.parametrize("name", harness_names())
def test_every_shipped_harness_loads(name: str) -> None:
    harness = load_harness(name)
    command = harness.command(instruction="Repair it.", base_url="http://127.0.0.1:8000", max_context_tokens=4096)
    assert harness.name == name
    assert not [word for word in (*command.argv, *command.env.values()) if "{" in word]


def test_the_shipped_harnesses_are_these() -> None:
    assert harness_names() == ("claude-code", "mini-swe-agent", "null")


def test_an_unknown_harness_lists_the_known_and_the_place_for_ones_own() -> None:
    with pytest.raises(
        HarnessUnknown, match=r"'claud-code'; known: claude-code, mini-swe-agent, null; .*claud-code/harness\.toml"
    ):
        load_harness("claud-code")


def test_a_name_is_no_path(tmp_path: Path) -> None:
    own(tmp_path / "elsewhere", OWN)
    with pytest.raises(HarnessUnknown):
        load_harness("../elsewhere/mine", own=tmp_path / "here")


def test_ones_own_harness_is_found_and_wins(tmp_path: Path) -> None:
    folder = own(tmp_path, OWN, name="null")
    assert load_harness("null", own=own(folder, OWN)).about == "mine"
    assert "mine" in harness_names(own=folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("openai.chat", "latin"), "key 'dialect'"),
        (OWN + "colour = 1\n", "key 'colour'"),
        (OWN.replace("argv", "arg"), "key 'argv'"),
        (OWN + "[files]\n'/x' = 'gone.txt'\n", r"mentions 'gone\.txt'"),
        ("about = ", "is not TOML"),
    ],
)
def test_a_broken_file_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HarnessBroken, match=message):
        load_harness("mine", own=own(tmp_path, text))


def test_an_instruction_with_braces_stays_as_it_is(tmp_path: Path) -> None:
    harness = load_harness("mine", own=own(tmp_path, OWN))
    text = 'print(f"{model} {x} {{}}") # {instruction'
    assert harness.command(instruction=text, base_url="b", max_context_tokens=1).argv == ("/bin/mine", text)


def test_a_harness_that_is_not_installed_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(HarnessNotInstalled, match=r"run `python -m rein_harnesses\.install claude-code"):
        installed_runtime(load_harness("claude-code"), home=tmp_path)


def test_installing_an_unknown_harness_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claud", "--home", str(tmp_path)]) == 2
    assert "known: claude-code" in capsys.readouterr().err
