"""No process of the demo outlives the one that started it.

Every process watches a pipe whose only write end is in the process above: end of file means that it is gone. A process
that may be stopped cannot watch, so ranks also ask the kernel to kill them with their parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KEEP_RUNNING = b"k"


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_now() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch_lifeline(fd: int, *, at_end: Callable[[], None] = end_now) -> None:
    """Call `at_end` once the pipe `fd` ends, unless a byte arrives first that says to stay."""

    def watch_pipe() -> None:
        if os.read(fd, 1) != KEEP_RUNNING:
            at_end()

    threading.Thread(target=watch_pipe, name="DeathPipeMonitor", daemon=True).start()


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, zombies included."""
    below: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # Under hidepid the processes of others are listed and may not be read.
            continue
        below.setdefault(parent, []).append(int(entry))
    found = below.get(pid, [])
    for child in found:
        found += below.get(child, [])
    return found


def end_family() -> None:
    """Kill and reap every descendant, then end. Nothing is left for whoever adopts orphans, which may not reap."""
    while True:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            end_now()
