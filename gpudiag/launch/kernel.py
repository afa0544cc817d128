"""Small questions to the kernel that Python has no function for."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

from gpudiag.collect import procfs

_MOST_FDS: Final = 4096

_PR_SET_CHILD_SUBREAPER = 36
"""include/uapi/linux/prctl.h"""


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends: none gets lost, and each exit status arrives here.

    Raises OSError on a kernel before 3.4.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None if it is gone, or the kernel (before 5.3) has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def socket_inodes(pid: int) -> set[int]:
    """Inodes of the sockets that a process has open. Raises OSError if it is gone or may not be looked at."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_FDS]:
        with contextlib.suppress(OSError):
            target = procfs.text(os.fsencode(os.readlink(f"/proc/{pid}/fd/{name}")))
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found
