"""The provider that runs nothing."""

from pathlib import Path

import pytest

from rein_harnesses.standin import stand_in
from rein_sandboxes.ports import PipeTarget, SandboxLimits, SandboxSpec
from rein_sandboxes.scripted import ScriptedSandboxes, one_model_call


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
async def test_one_model_call_asks_as_the_pipe_would(status: int, exit_status: int, tmp_path: Path) -> None:
    async with stand_in() as model:
        model.status = status
        pipe = PipeTarget(url=model.url, grant="the-grant")
        spec = SandboxSpec(name="x", argv=("null",), scratch=tmp_path, limits=SandboxLimits(wall_s=1), pipe=pipe)
        result = await ScriptedSandboxes(one_model_call).run(spec)
    assert (result.exit_status, result.pipe.num_requests) == (exit_status, 1)
    assert [each.headers["x-rein-grant"] for each in model.seen] == ["the-grant"]
