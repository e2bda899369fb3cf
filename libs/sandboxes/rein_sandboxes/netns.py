"""A listening socket inside another process's network namespace, served from outside.

Nothing runs inside for it and no file of it exists there. As root a throw-away thread enters the namespace (a thread
that came back wrong must not serve anyone else); otherwise a short-lived helper enters it together with the user
namespace that owns it, and hands the socket over.
"""

import asyncio
import ctypes
import errno
import os
import socket
import subprocess
import sys
import threading

from rein_sandboxes.errors import SandboxFailed

CLONE_NEWNET = 0x40000000
LOOPBACK_PATIENCE_S = 5.0
_HELPER = "import socket as s; made = s.socket(); s.send_fds(s.socket(fileno=0), [b'.'], [made.fileno()])"


async def listen_inside(pid: int, *, port: int) -> socket.socket:
    """Listen on 127.0.0.1:`port` in the network namespace of `pid`. Raises SandboxFailed."""
    try:
        make = _by_thread if os.geteuid() == 0 else _by_helper
        listener = await make(pid)
        await _bind(listener, port=port)
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxFailed("sandbox.no_pipe", f"no socket could be made in the sandbox's network: {error}") from error
    listener.listen(128)
    listener.setblocking(False)
    return listener


async def _bind(listener: socket.socket, *, port: int) -> None:
    """`lo` of a new namespace comes up a moment after the process was made."""
    deadline_s = asyncio.get_running_loop().time() + LOOPBACK_PATIENCE_S
    while True:
        try:
            listener.bind(("127.0.0.1", port))
            return
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or asyncio.get_running_loop().time() > deadline_s:
                listener.close()
                raise
        await asyncio.sleep(0.001)


async def _by_thread(pid: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    made: asyncio.Future[socket.socket] = loop.create_future()

    def enter() -> None:
        try:
            result: socket.socket | OSError = _socket_in(pid)
        except OSError as error:
            result = error
        loop.call_soon_threadsafe(_settle, made, result)

    threading.Thread(target=enter, name=f"netns-{pid}", daemon=True).start()
    return await made


def _settle(made: "asyncio.Future[socket.socket]", result: socket.socket | OSError) -> None:
    if made.cancelled():
        if isinstance(result, socket.socket):
            result.close()
    elif isinstance(result, OSError):
        made.set_exception(result)
    else:
        made.set_result(result)


def _socket_in(pid: int) -> socket.socket:
    """For a thread of its own: it stays in that namespace."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "the sandbox's network namespace cannot be entered")
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    finally:
        os.close(namespace)


async def _by_helper(pid: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = ["nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net"]
        argv += [sys.executable, "-I", "-S", "-c", _HELPER]
        await asyncio.to_thread(_hand_over, argv, theirs.fileno())
        _, handles, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=handles[0])


def _hand_over(argv: list[str], channel: int) -> None:
    subprocess.run(argv, stdin=channel, capture_output=True, check=True, timeout=LOOPBACK_PATIENCE_S)
