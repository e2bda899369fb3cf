"""Real sandboxes for the tests marked `sandbox`, with this machine's own /usr where no base root was made."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rein_sandboxes.bubblewrap import Bubblewrap, open_bubblewrap
from rein_sandboxes.ports import WORKSPACE, Mount, SandboxLimits, SandboxResult, SandboxSpec
from rein_sandboxes.root import root_folder
from rein_sandboxes.settings import SandboxSettings

HOME = Path(__file__).parents[3] / "var/sandboxes"

SpecOf = Callable[..., SandboxSpec]


@pytest.fixture(scope="session")
def sandbox_settings(tmp_path_factory: pytest.TempPathFactory) -> SandboxSettings:
    if root_folder(HOME).is_dir():
        return SandboxSettings(home=HOME)
    return SandboxSettings(home=tmp_path_factory.mktemp("sandboxes"), base="host")


@pytest.fixture
async def provider(sandbox_settings: SandboxSettings) -> AsyncIterator[Bubblewrap]:
    async with open_bubblewrap(sandbox_settings) as opened:
        yield opened


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def shell(tmp_path: Path, workspace: Path) -> SpecOf:
    """A spec that runs a shell script in a writable workspace."""

    def make(script: str, *, limits: SandboxLimits | None = None, **fields: object) -> SandboxSpec:
        chosen = limits or SandboxLimits(wall_s=20.0, memory_bytes=256 << 20, processes=64, output_bytes=1 << 20)
        mounts = (Mount(workspace, WORKSPACE, is_writable=True),)
        about = {"mounts": mounts, "env": {}, "files": {}, "pipe": None} | fields
        return SandboxSpec(
            name=f"test-{tmp_path.parent.name}-{tmp_path.name}",
            argv=("/bin/sh", "-c", script),
            scratch=tmp_path,
            limits=chosen,
            **about,  # type: ignore[arg-type]
        )

    return make


@pytest.fixture
def run(provider: Bubblewrap, shell: SpecOf) -> Callable[..., "asyncio.Future[SandboxResult]"]:
    return lambda script, **fields: asyncio.ensure_future(provider.run(shell(script, **fields)))
