"""A running gateway for every test of this service."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rein_dialects.testing import make_policy
from rein_gateway.testing import Stage, open_stage


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_policy(tmp_path_factory.mktemp("policy") / "toy")


@pytest.fixture
async def stage(policy_folder: Path) -> AsyncIterator[Stage]:
    async with open_stage(policy_folder) as stage:
        yield stage
