"""Bring a task set's packages and test site to this machine; check its tasks, or make them anew.

    python -m rein_tasks.build --manifest SET --cache CACHE [--make] [--verify] [--python PYTHON]

Exit status: 0 done, 1 tasks failed their check, 2 the set or its packages cannot be used.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rein_tasks.cache import fill_cache
from rein_tasks.errors import TaskSetBroken
from rein_tasks.factory.making import make_tasks
from rein_tasks.factory.readmission import readmit
from rein_tasks.grading_site import build_test_site
from rein_tasks.task_set import Recipe, load_recipe, load_task_set, save_tasks


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    try:
        recipe = load_recipe(options.manifest)
        prepare(recipe, cache=options.cache, python=options.python, report=_say)
        if options.make:
            made = make_tasks(recipe, cache=options.cache, python=options.python, report=_progress())
            save_tasks(options.manifest, task_set=made)
        task_set = load_task_set(options.manifest)
        if not options.verify:
            _say(f"{len(task_set.tasks)} tasks of {task_set.name} are ready")
            return 0
        failures = readmit(task_set, cache=options.cache, python=options.python, report=_progress())
    except TaskSetBroken as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for failure in failures:
        print(failure, file=sys.stderr)
    _say(f"{len(task_set.tasks) - len(failures)} of {len(task_set.tasks)} tasks passed the check")
    return 1 if failures else 0


def prepare(recipe: Recipe, *, cache: Path, python: Path, report: Callable[[str], None]) -> None:
    """Packages and test site; quick when they are there already."""
    report(f"packages of {recipe.name}: {len(recipe.packages)}")
    fill_cache(recipe.packages, cache=cache, build_backends=recipe.build_backends)
    build_test_site(cache / "site", packages=recipe.packages, python=python)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m rein_tasks.build", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--manifest", type=_absolute, required=True, help="folder of the task set")
    parser.add_argument("--cache", type=_absolute, required=True, help="folder for packages and test site")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable).resolve(), help="interpreter that runs the tests"
    )
    parser.add_argument("--make", action="store_true", help="write tasks.jsonl anew from task_set.toml")
    parser.add_argument("--verify", action="store_true", help="run every task's tests with and without its fault")
    return parser.parse_args(argv)


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _say(text: str) -> None:
    print(text, flush=True)


def _progress() -> Callable[[str], None]:
    """One changing line on a terminal; on anything else a line every ten seconds."""
    if sys.stdout.isatty():
        return lambda text: print(f"\r{text:<78}", end="", flush=True)
    last_s = [float("-inf")]

    def report(text: str) -> None:
        if time.monotonic() - last_s[0] >= 10.0:
            last_s[0] = time.monotonic()
            _say(text)

    return report


if __name__ == "__main__":
    raise SystemExit(main())
