"""One bubblewrap process: started but held at its gate, released, killed, reaped.

Between `start` and `release` nothing inside runs, so limits and the pipe can be put in place around its first process.
Processes are watched through process descriptors: no signal handlers, no thread, no process id that may be reused.
The caller must be a thread that outlives the sandbox (the event loop's): its end is the sandbox's end.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rein_sandboxes.errors import SandboxFailed

#: How long a killed sandbox may take to be gone.
DEATH_S = 10.0


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process ended, and what all its dead descendants used."""

    status: int
    """Negative = signal."""
    cpu_s: float


class Launch:
    """Owns the processes and descriptors; `close` when `wait` has returned."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, output: int, gate: int) -> None:
        self._process = process
        self._handle = os.pidfd_open(process.pid)
        self._first_handle: int | None = None
        self._gate: int | None = gate
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.output = output
        """Reading end of the output; whoever reads it closes it."""
        self.first_pid = 0
        """Host's id of the first process inside; 0 until `start` has returned."""
        asyncio.get_running_loop().add_reader(self._handle, self._reap)

    @classmethod
    async def start(cls, arguments: Sequence[str], *, bwrap: str, patience_s: float) -> "Launch":
        """Everything is set up inside when this returns, and nothing has run. Raises SandboxFailed."""
        output, output_end = os.pipe()
        info, info_end = os.pipe()
        gate_end, gate = os.pipe()
        argv = [bwrap, "--info-fd", str(info_end), "--block-fd", str(gate_end), *arguments]
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - a fork and an exec; the thread must be this one
                argv, stdin=subprocess.DEVNULL, stdout=output_end, stderr=output_end, pass_fds=(info_end, gate_end)
            )
        except OSError as error:
            for descriptor in (output, info, gate):
                os.close(descriptor)
            raise SandboxFailed("sandbox.start_failed", f"{bwrap} cannot be started: {error}") from error
        finally:
            for descriptor in (output_end, info_end, gate_end):
                os.close(descriptor)
        launch = cls(process, output=output, gate=gate)
        try:
            launch.first_pid = await _first_pid(info, patience_s=patience_s)
            launch._first_handle = os.pidfd_open(launch.first_pid)
        except (SandboxFailed, OSError) as error:
            detail = await launch._complaint(error)
            raise SandboxFailed("sandbox.start_failed", detail) from error
        except asyncio.CancelledError:
            await launch._abort()
            os.close(output)
            raise
        return launch

    def release(self) -> None:
        """Let it run."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def kill(self) -> None:
        """Everything inside is doomed when this returns. Safe at any time."""
        with suppress(ProcessLookupError):
            if self._first_handle is not None:
                signal.pidfd_send_signal(self._first_handle, signal.SIGKILL)
            elif not self._exit.done():
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def wait(self) -> Exit:
        """Everything inside is dead when this returns."""
        return await asyncio.shield(self._exit)

    def on_exit(self, call: Callable[[], None]) -> None:
        self._exit.add_done_callback(lambda _: call())

    async def end(self) -> Exit:
        """Kill, and wait for the death. Raises SandboxFailed if it does not come."""
        self.kill()
        try:
            return await asyncio.wait_for(self.wait(), DEATH_S)
        except TimeoutError as error:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            detail = f"process {self.first_pid} did not die within {DEATH_S:g} s of a kill"
            raise SandboxFailed("sandbox.undead", detail) from error

    def close(self) -> None:
        """Let go of everything but the output."""
        asyncio.get_running_loop().remove_reader(self._handle)
        self.release()
        for handle in (self._handle, self._first_handle):
            if handle is not None:
                os.close(handle)
        self._first_handle = None

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if not self._exit.done():
            self._exit.set_result(Exit(_signed(self._process.returncode), usage.ru_utime + usage.ru_stime))

    async def _abort(self) -> None:
        try:
            await asyncio.shield(self.end())
        finally:
            self.close()

    async def _complaint(self, error: Exception) -> str:
        """What bubblewrap itself said; ends the launch."""
        await self._abort()
        os.set_blocking(self.output, False)
        try:
            said = os.read(self.output, 2000).decode(errors="replace").strip()
        except BlockingIOError:
            said = ""
        os.close(self.output)
        return f"bubblewrap did not set the sandbox up: {said or error}"


def _signed(status: int) -> int:
    """Shells and bubblewrap report a signal as 128 + number."""
    return 128 - status if 128 < status <= 128 + signal.NSIG else status


async def _first_pid(info: int, *, patience_s: float) -> int:
    """Read bubblewrap's report of the process it made; closes `info`."""
    loop = asyncio.get_running_loop()
    report = bytearray()
    ended = loop.create_future()

    def read() -> None:
        chunk = os.read(info, 4096)
        report.extend(chunk)
        if (not chunk or report.rstrip().endswith(b"}")) and not ended.done():
            ended.set_result(None)

    loop.add_reader(info, read)
    try:
        await asyncio.wait_for(ended, patience_s)
    except TimeoutError as error:
        raise SandboxFailed("sandbox.start_failed", f"bubblewrap said nothing for {patience_s:g} s") from error
    finally:
        loop.remove_reader(info)
        os.close(info)
    try:
        return int(json.loads(report)["child-pid"])
    except (ValueError, KeyError) as error:
        raise SandboxFailed("sandbox.start_failed", "bubblewrap ended while it set the sandbox up") from error
