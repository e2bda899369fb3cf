"""The grader's configuration."""

from pathlib import Path

from pydantic import Field

from rein_sandboxes.settings import SandboxSettings
from rein_service import ServiceConfig


class GraderConfig(ServiceConfig):
    """See rein_service.config for what every service has."""

    capacity: int = Field(2, ge=1)
    """Gradings at once; test runs use the processor all the time, so no more than the cores there are to spare."""

    attempts: int = Field(2, ge=1)
    """Tries at a grading that fails for reasons of the machine, before the reward is absent."""

    reuse_grades: bool = True
    """Give the same patch to the same task the grade it got before, without running the tests again. Grades are a
    function of task, patch and limits: task sets admit no task whose tests are unsteady."""

    state: Path = Path("var/grader")
    """Folder of gradings in hand. Several graders may share it."""

    tasks_cache: Path = Path("var/tasks")
    """Folder of unpacked packages and the test site (`python -m rein_tasks.build`)."""

    sandbox: SandboxSettings = SandboxSettings()
    """How sandboxes are made."""
