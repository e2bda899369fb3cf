"""Runs a command so that none of its processes outlives either it or the guard's parent.

Started as `python -I -S guard.py COMMAND...` in a session of its own; uses only the standard library. When the parent
dies (even by SIGKILL) or the command ends, the whole process group is killed at once: vLLM leaves its engine core
behind when its server is killed. Told to stop (SIGTERM), the command is told first and has a few seconds to clean up.
"""

import ctypes
import os
import signal
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1
GRACE_S = 5


def _end_group(number: int = 0, frame: FrameType | None = None) -> None:
    os.killpg(0, signal.SIGKILL)


def _signal_when_parent_dies(number: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def main() -> None:
    """Never returns: ends with its process group."""
    signal.signal(signal.SIGHUP, _end_group)
    signal.signal(signal.SIGALRM, _end_group)
    parent = os.getppid()
    _signal_when_parent_dies(signal.SIGHUP)
    if os.getppid() != parent:
        _end_group()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _signal_when_parent_dies(signal.SIGKILL)
        os.execvp(sys.argv[1], sys.argv[1:])

    def stop(number: int, frame: FrameType | None) -> None:
        signal.alarm(GRACE_S)
        os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    _, status = os.waitpid(child, 0)
    print(f"guard: {sys.argv[1]} ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
    _end_group()


if __name__ == "__main__":
    main()
