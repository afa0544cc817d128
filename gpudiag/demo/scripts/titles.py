"""What a process is called in the process table."""

from __future__ import annotations

import ctypes

ARG_START, ARG_END = 45, 46
"""Places of arg_start and arg_end in /proc/PID/stat, counted from the state on."""


def show_title(title: str, *, padded: bool = False) -> None:
    """Set the 15-byte name of the process; if `padded`, also write the title and spaces over its command line.

    This is what setproctitle does, and what servers that use it look like.
    """
    with open("/proc/self/comm", "wb", buffering=0) as comm:
        comm.write(title.encode()[:15])
    if padded:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        ctypes.memmove(start, title.encode().ljust(end - start - 1)[: end - start - 1], end - start - 1)
