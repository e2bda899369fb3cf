"""The sandbox examiner on a small task of its own: every way to look good without being good is worth nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_grader.adapters.examiner import SandboxExaminer
from rein_grader.domain.grade import Grade
from rein_grader.errors import TaskRefused, VerifierFailed
from rein_sandboxes.bubblewrap import Bubblewrap, open_bubblewrap
from rein_sandboxes.errors import SandboxFailed
from rein_sandboxes.root import root_folder
from rein_sandboxes.settings import SandboxSettings
from rein_tasks import Chance, Fault, Package, Split, Task, TaskSet
from rein_tasks.operators import Kind
from rein_tasks.task_set import save_tasks

pytestmark = pytest.mark.sandbox

VAR = Path(__file__).parents[4] / "var"
SOURCE = "def less(a, b):\n    return a < b\n"
FAULTY = SOURCE.replace("<", "<=")
TESTS = """from small import less

def test_less():
    assert less(1, 2)

def test_equal():
    assert not less(1, 1)
"""
RECIPE = """format = 1
name = "small"

[[packages]]
name = "small"
version = "1"
licence = "MIT"
archive = "small-1.tar.gz"
sha256 = "{sha256}"
split = "train"
source = {{ "small.py" = "small.py" }}
tests = {{ "tests" = "tests" }}
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Exam:
    """One task on disk, and gradings of patches to it."""

    def __init__(self, folder: Path, *, sandboxes: Bubblewrap) -> None:
        self.folder = folder
        self.sandboxes = sandboxes
        self.cache = folder / "cache"
        package = Package(
            name="small",
            version="1",
            licence="MIT",
            archive="small-1.tar.gz",
            sha256="0" * 64,
            split=Split.TRAIN,
            source={"small.py": "small.py"},
            tests={"tests": "tests"},
        )
        old, new = (text.splitlines()[1] for text in (SOURCE, FAULTY))
        fault = Fault(line=2, kind=Kind.COMPARISON, right="<", wrong="<=", old=old, new=new)
        self.task = Task(
            name="small-2",
            package=package,
            path="small.py",
            fault=fault,
            listed_tests=("tests/test_small.py::test_less", "tests/test_small.py::test_equal"),
            limit_s=20.0,
            chance=Chance(num_passing=1, num_tried=4),
        )
        write(folder / "set", {"task_set.toml": RECIPE.format(sha256=package.sha256)})
        save_tasks(folder / "set", task_set=TaskSet(name="small", packages=(package,), tasks=(self.task,)))
        write(
            self.cache / "packages" / package.folder_name,
            {"source/small.py": SOURCE, "tests/tests/test_small.py": TESTS},
        )
        (self.cache / "site").symlink_to(VAR / "tasks/site")

    def finished(self) -> ev.RolloutFinished:
        return ev.RolloutFinished(
            identity=pb.Identity(run="r", task="small-2", group="r.g0", member=0, attempt=1),
            task_set=str(self.folder / "set"),
            task_digest=self.task.digest,
            limits=pb.Limits(memory_bytes=512 << 20, processes=64),
        )

    async def grade(self, patch: bytes, *, finished: ev.RolloutFinished | None = None) -> Grade:
        examiner = SandboxExaminer(self.sandboxes, state=self.folder / "state", tasks_cache=self.cache)
        grade = await examiner.examine(finished or self.finished(), patch=patch)
        assert list((self.folder / "state").iterdir()) == []
        return grade


@pytest.fixture
async def exam(tmp_path: Path) -> AsyncIterator[Exam]:
    if not (VAR / "tasks/site/pytest").is_dir():
        pytest.skip("no test site on this machine: make setup")
    has_root = root_folder(VAR / "sandboxes").is_dir()
    settings = SandboxSettings(home=VAR / "sandboxes", base="root" if has_root else "host")
    async with open_bubblewrap(settings) as sandboxes:
        yield Exam(tmp_path, sandboxes=sandboxes)


def changed(after: str) -> bytes:
    """A patch that makes the module this."""
    lines = ["-" + line for line in FAULTY.splitlines()] + ["+" + line for line in after.splitlines()]
    head = (
        f"diff --git a/small.py b/small.py\n--- a/small.py\n+++ b/small.py\n@@ -1,2 +1,{len(after.splitlines())} @@\n"
    )
    return (head + "\n".join(lines) + "\n").encode()


def added(name: str, text: str) -> bytes:
    lines = text.splitlines()
    head = (
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n"
    )
    return (head + "".join(f"+{line}\n" for line in lines)).encode()


def outcomes(grade: Grade) -> list[str]:
    return [ev.TestOutcome.Name(test.outcome).removeprefix("TEST_OUTCOME_") for test in grade.tests]


async def test_the_repair_is_worth_one(exam: Exam) -> None:
    grade = await exam.grade(changed(SOURCE))
    assert (grade.reward, outcomes(grade)) == (1.0, ["PASSED", "PASSED"])
    assert grade.cpu_s is not None
    print(f"a grading: {grade.cpu_s:.2f} CPU s, {grade.wall_s:.2f} s")


async def test_no_change_is_worth_nothing(exam: Exam) -> None:
    grade = await exam.grade(b"")
    assert (grade.reward, outcomes(grade), grade.failure) == (0.0, ["PASSED", "FAILED"], None)


CONFTEST = (
    "import pytest\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    outcome = yield\n    outcome.get_result().outcome = 'passed'\n"
)
CHEATS = {
    "a syntax error": changed("def less(a, b:\n"),
    "an import error": changed("import nowhere\n"),
    "an early clean exit": changed("import os\nos._exit(0)\n"),
    "an exit while tests run": changed("import os\ndef less(a, b):\n    os._exit(0)\n"),
    "killing its own process": changed("import os\ndef less(a, b):\n    os.kill(os.getpid(), 9)\n"),
    "skipping from inside": changed("import pytest\ndef less(a, b):\n    pytest.skip('no')\n"),
    "a conftest at the top": added("conftest.py", CONFTEST),
    "a conftest among the tests": added("tests/conftest.py", CONFTEST),
    "tests of its own": added("tests/test_small.py", "def test_less(): pass\ndef test_equal(): pass\n"),
    "pytest settings": added("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    "a pytest of its own": added("pytest.py", "def main(*a, **k): return 0\n"),
    "a sitecustomize": added("sitecustomize.py", "import os\nos._exit(0)\n"),
    "a report of its own": added("report.jsonl", '{"started": true}\n{"ended": 0}\n'),
}


@pytest.mark.parametrize("cheat", CHEATS)
async def test_a_cheat_is_worth_nothing(exam: Exam, cheat: str) -> None:
    grade = await exam.grade(CHEATS[cheat])
    assert grade.reward == 0.0


async def test_a_patch_that_does_not_apply_is_the_policys(exam: Exam) -> None:
    grade = await exam.grade(b"garbage")
    assert grade.reward == 0.0
    assert grade.failure is not None
    assert (grade.failure.owner, grade.failure.code) == (pb.OWNER_POLICY, "policy.patch_does_not_apply")
    assert outcomes(grade) == ["MISSING", "MISSING"]


async def test_tests_that_never_end_are_the_policys(exam: Exam) -> None:
    finished = exam.finished()
    finished.limits.grading_s = 3.0
    grade = await exam.grade(changed("def less(a, b):\n    while True: pass\n"), finished=finished)
    assert grade.reward == 0.0
    assert grade.failure is not None
    assert grade.failure.code == "policy.tests_out_of_time"


async def test_tests_that_eat_all_memory_are_the_policys(exam: Exam) -> None:
    grade = await exam.grade(changed("def less(a, b):\n    x = []\n    while True: x.append(bytearray(8 << 20))\n"))
    assert grade.reward == 0.0
    assert grade.failure is not None
    assert grade.failure.code == "policy.tests_out_of_memory"


async def test_another_digest_is_the_tasks(exam: Exam) -> None:
    finished = exam.finished()
    finished.task_digest = "0" * 64
    with pytest.raises(TaskRefused) as refusal:
        await exam.grade(b"", finished=finished)
    assert refusal.value.code == "task.digest_mismatch"


async def test_a_missing_package_is_the_tasks(exam: Exam) -> None:
    (exam.cache / "packages").rename(exam.cache / "gone")
    with pytest.raises(TaskRefused, match="is not unpacked"):
        await exam.grade(b"")


async def test_a_runner_that_does_not_start_is_no_zero(exam: Exam) -> None:
    (exam.cache / "site").unlink()
    (exam.cache / "site").mkdir()
    with pytest.raises(VerifierFailed, match="did not start"):
        await exam.grade(b"")


async def test_a_sandbox_that_does_not_start_is_no_zero(exam: Exam) -> None:
    (exam.cache / "site").unlink()
    with pytest.raises(SandboxFailed):
        await exam.grade(b"")
