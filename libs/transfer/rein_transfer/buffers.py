"""Reusing the memory of message buffers.

In a process that has numpy loaded (and in others by chance), glibc gives every freed buffer of a megabyte back to the
kernel and faults it in again for the next message; moving weights then spends most of its CPU there (measured:
0.75 against 0.27 s of CPU to send 256 MiB). Process-wide, so a composition root asks for it.
"""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_REUSED_BYTES = 32 * 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


def reuse_buffers() -> bool:
    """Keep up to 64 MiB of freed memory in the process; False where there is no glibc."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, _REUSED_BYTES) and libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
