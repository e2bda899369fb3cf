"""Run a test command as a plain subprocess with limits: for trusted code only (the factory and its checks).

No isolation: a grader runs agents' code in a sandbox instead.
"""

import os
import resource
import signal
import subprocess
from pathlib import Path

from rein_tasks.verification import VerifyCommand, VerifyRun

MEMORY_BYTES = 2 << 30


def run_in_subprocess(command: VerifyCommand, *, cpu_limit_s: int | None = None) -> VerifyRun:
    """Own process group, killed as a whole at the limit; no inherited environment, no standard input.

    `cpu_limit_s` ends a hanging test early without blaming a busy machine; it counts as a time-out too.
    """
    report = Path(command.report)
    report.unlink(missing_ok=True)
    before = _children_cpu_s()
    process = subprocess.Popen(
        command.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if cpu_limit_s is not None:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s + 1))
    has_timed_out = False
    try:
        output, _ = process.communicate(timeout=command.limit_s)
    except subprocess.TimeoutExpired:
        has_timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return VerifyRun(
        report=report.read_bytes() if report.is_file() else None,
        has_timed_out=has_timed_out or process.returncode == -signal.SIGXCPU,
        output=output.decode(errors="replace"),
        cpu_s=_children_cpu_s() - before,
    )


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
