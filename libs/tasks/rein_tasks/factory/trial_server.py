"""Run many trials from one process that has pytest loaded: each in a forked child. Stands alone, beside pytest_runner.

    python -I -S -B <site>/trial_server.py

A request is a line of JSON {"arguments": [REPORT, TREE, CONFCUT, NODE_ID...], "cpu_limit_s", "limit_s"}; the answer
is a line {"status": N}, negative for the signal that ended the child. Nothing of a tree is ever loaded in the parent,
so a child sees it as a fresh interpreter would; it only saves the time that loading pytest takes.
"""

import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path


def preload() -> None:
    config = importlib.import_module("_pytest.config")
    for name in ("pytest", *(f"_pytest.{plugin}" for plugin in config.default_plugins)):
        importlib.import_module(name)


def run_in_child(arguments: list[str], *, cpu_limit_s: int, limit_s: int) -> int:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s + 1))
    signal.alarm(limit_s)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    status = 1
    try:
        status = importlib.import_module("pytest_runner").main(arguments)
    finally:
        os._exit(status)


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    preload()
    for line in sys.stdin:
        request = json.loads(line)
        status = run_in_child(request["arguments"], cpu_limit_s=request["cpu_limit_s"], limit_s=request["limit_s"])
        print(json.dumps({"status": status}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
