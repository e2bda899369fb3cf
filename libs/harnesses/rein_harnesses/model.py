"""What a harness is: one TOML file in a folder of its name, and the files beside it that it mentions.

Pure: this module reads nothing and runs nothing. Words in braces are filled in for each rollout, in `argv` and `env`:
{instruction} {model} {base_url} {max_context} {runtime}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RUNTIME = PurePosixPath("/opt/harness")
"""Where a sandbox shows the harness's runtime, read-only."""

MODEL_NAME = "policy"
"""What harnesses call the policy; the gateway knows no other model."""


class Install(BaseModel):
    """How the runtime folder is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["npm", "python"]
    """npm: into `node_modules`, without running the packages' scripts. python: without dependencies, compiled."""
    packages: tuple[str, ...] = Field(min_length=1)
    """Pinned, in the installer's own notation."""
    links: Mapping[str, str] = {}
    """Name in the runtime folder -> pattern of the one installed file it stands for."""
    copies: tuple[str, ...] = ()
    """Files of this folder that belong into the runtime folder."""


class Harness(BaseModel):
    """One harness at one pinned version."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """Name of its folder."""
    folder: Path
    """Where its file was read."""
    about: str
    """One sentence for a person."""
    version: str
    """Pinned; stands in every RolloutFinished."""
    dialect: Literal["anthropic.messages", "openai.chat"]
    """What it speaks to the gateway."""
    exit_status: str
    """What its exit status says about the rollout. Never a grade."""
    argv: tuple[str, ...] = Field(min_length=1)
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    """Absolute path in the sandbox -> file of this folder, shown read-only."""
    install: Install | None = None
    """None = it needs nothing that the base root does not have."""

    def runtime_folder(self, home: Path) -> Path | None:
        """Where it is installed below `home`; None when it needs no installation."""
        return home / f"{self.name}-{self.version}" if self.install else None

    def command(self, *, instruction: str, base_url: str, max_context_tokens: int) -> "Command":
        """How to start it for one rollout."""
        words = {
            "{instruction}": instruction,
            "{model}": MODEL_NAME,
            "{base_url}": base_url,
            "{max_context}": str(max_context_tokens),
            "{runtime}": str(RUNTIME),
        }
        return Command(
            argv=tuple(_filled(word, words) for word in self.argv),
            env={name: _filled(value, words) for name, value in self.env.items()},
            files={inside: (self.folder / file).read_bytes() for inside, file in self.files.items()},
        )


@dataclass(frozen=True, slots=True)
class Command:
    """What a sandbox is given."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, bytes]


def _filled(text: str, words: Mapping[str, str]) -> str:
    """Fill in one pass: an instruction that holds a word in braces stays as it is."""
    filled, rest = "", text
    while (start := rest.find("{")) >= 0:
        word = next((word for word in words if rest.startswith(word, start)), "{")
        filled += rest[:start] + words.get(word, word)
        rest = rest[start + len(word) :]
    return filled + rest
