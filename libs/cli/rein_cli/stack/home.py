"""The folder of a local stack: configuration, logs, process records, blobs. Nothing of a stack lies outside it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """Paths inside one stack's folder."""

    path: Path

    @property
    def configs(self) -> Path:
        return self.path / "config"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def processes(self) -> Path:
        return self.path / "run"

    @property
    def blobs(self) -> Path:
        return self.path / "blobs"

    @property
    def work(self) -> Path:
        """Services' own scratch folders, by name."""
        return self.path / "work"

    @property
    def broker(self) -> Path:
        return self.path / "kafka"

    def config(self, name: str) -> Path:
        return self.configs / f"{name}.toml"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def make(self) -> None:
        for folder in (self.configs, self.logs, self.processes, self.blobs, self.work):
            folder.mkdir(parents=True, exist_ok=True)
