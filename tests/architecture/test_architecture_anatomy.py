"""Every service has the same anatomy, every distribution names itself, forbidden names and handlers are nowhere."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = sorted(path for path in (ROOT / "services").iterdir() if (path / "pyproject.toml").exists())
DISTRIBUTIONS = sorted(path.parent for top in ("libs", "services") for path in (ROOT / top).glob("*/pyproject.toml"))
OWN_MODULES = sorted(
    path
    for top in ("libs", "services")
    for path in (ROOT / top).rglob("*.py")
    if path.relative_to(ROOT).parts[:3] != ("libs", "contracts", "rein")
)
SHIPPED = [path for path in OWN_MODULES if "tests" not in path.parts]
TESTS = [path for top in ("libs", "services", "tests") for path in sorted((ROOT / top).rglob("test_*.py"))]

#: Programs that run inside a sandbox, where the environment is what they are given.
INSIDE = ("libs/harnesses/rein_harnesses/data/", "libs/tasks/rein_tasks/pytest_runner.py")

#: Where a library raises bare Exception for a file it cannot read (tokenizers), beside the end of every service.
CATCHERS = {"libs/service/rein_service/runtime.py", "libs/dialects/rein_dialects/rendering.py"}

SERVICE_FILES = ("main.py", "config.py", "service.py", "ports.py", "errors.py", "metrics.py", "py.typed")


def test_there_are_the_nine_services_of_the_design() -> None:
    names = "assembler dispatcher gateway grader inference learner observer runner weightserver"
    assert [path.name for path in SERVICES] == names.split()


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_a_service_has_the_anatomy_of_all(service: Path) -> None:
    package = service / f"rein_{service.name}"
    missing = [file for file in SERVICE_FILES if not (package / file).exists()]
    missing += [folder for folder in ("domain", "adapters") if not (package / folder / "__init__.py").exists()]
    missing += [file for file in ("README.md", "tests/unit") if not (service / file).exists()]
    assert not missing
    scripts = tomllib.loads((service / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {f"rein-{service.name}": f"rein_{service.name}.main:main"}
    assert "run_service(" in (package / "main.py").read_text()


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda path: path.name)
def test_a_distribution_names_itself_its_package_and_what_it_imports(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == f"rein-{folder.name}"
    assert (folder / f"rein_{folder.name}" / "py.typed").exists()
    extras = project["project"].get("optional-dependencies", {}).values()
    requirements = [*project["project"]["dependencies"], *chain.from_iterable(extras)]
    named = {re.split(r"[\s\[=<>~;!]", each)[0] for each in requirements}
    text = "\n".join(path.read_text() for path in (folder / f"rein_{folder.name}").rglob("*.py"))
    used = {f"rein-{name}" for name in re.findall(r"^\s*(?:from|import) rein_(\w+)", text, re.MULTILINE)}
    assert used - named - {f"rein-{folder.name}"} == set()


def test_no_module_or_package_is_a_drawer() -> None:
    drawers = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert not [path for path in OWN_MODULES if drawers & {path.stem, *path.relative_to(ROOT).parts}]


def test_the_environment_is_read_in_one_file() -> None:
    readers = [str(path.relative_to(ROOT)) for path in SHIPPED if re.search(r"os\.(environ|getenv)", path.read_text())]
    assert [path for path in readers if not path.startswith(INSIDE)] == ["libs/service/rein_service/config.py"]


def test_unknown_exceptions_are_caught_only_where_services_end() -> None:
    catchers = {
        str(path.relative_to(ROOT))
        for path in SHIPPED
        if re.search(r"except (Base)?Exception\b|except:", path.read_text())
    }
    assert catchers <= CATCHERS


def test_tests_neither_patch_our_code_nor_sleep() -> None:
    tests = [path for top in ("libs", "services", "tests") for path in (ROOT / top).rglob("test_*.py")]
    forbidden = re.compile(r"mock\.patch|(?<!clock\.)(?<!asyncio\.)sleep\((?!0\))[0-9.]+\)")
    assert not [
        str(path.relative_to(ROOT))
        for path in tests
        if path.name != Path(__file__).name and forbidden.search(path.read_text())
    ]


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in TESTS]
    assert sorted(names) == sorted(set(names))
