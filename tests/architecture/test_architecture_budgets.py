"""Size budgets: the lists of offenders may only shrink, and they are empty."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS, MAX_MAIN_LINES, MAX_SERVICE_LINES = 500, 60, 6, 40, 3000

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*, with_tests: bool = True) -> Iterator[Path]:
    for top in ("libs", "services", "tests", "deploy"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            is_generated = parts[:3] == ("libs", "contracts", "rein")
            if not is_generated and (with_tests or "tests" not in parts):
                yield path


def num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_longer_than_its_budget() -> None:
    offenders = {name(path): num_lines(path) for path in sources() if num_lines(path) > MAX_FILE_LINES}
    assert not offenders


def test_no_function_is_longer_than_its_budget() -> None:
    offenders = {
        f"{name(path)}:{function.name}": length
        for path in sources()
        for function in functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not offenders


def test_no_function_has_more_parameters_than_its_budget() -> None:
    offenders = {
        f"{name(path)}:{function.name}": number
        for path in sources(with_tests=False)
        for function in functions(path)
        if (number := _num_parameters(function)) > MAX_PARAMETERS
    }
    assert not offenders


def _num_parameters(function: Function) -> int:
    """Without self and cls, and without those of constructors that only take a service's collaborators."""
    named = [each.arg for each in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]]
    return 0 if function.name == "__init__" else len([each for each in named if each not in ("self", "cls")])


def test_every_main_is_a_composition_root_of_at_most_forty_lines() -> None:
    mains = {
        path: sum(1 for line in path.read_text().splitlines() if line.strip())
        for path in (ROOT / "services").glob("*/rein_*/main.py")
    }
    assert len(mains) == 9
    assert not {name(path): lines for path, lines in mains.items() if lines > MAX_MAIN_LINES}


def test_no_service_is_larger_than_its_budget() -> None:
    sizes = {
        service.name: sum(num_lines(path) for path in service.rglob("*.py") if "tests" not in path.parts)
        for service in (ROOT / "services").iterdir()
    }
    assert not {service: lines for service, lines in sizes.items() if lines > MAX_SERVICE_LINES}


def test_every_module_says_what_it_is() -> None:
    silent = [
        name(path)
        for path in sources(with_tests=False)
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent
