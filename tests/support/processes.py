"""What tests ask /proc about processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 20.0
LOOK_APART_S = 0.01

_X86_64 = {
    0: "read",
    1: "write",
    7: "poll",
    35: "nanosleep",
    45: "recvfrom",
    61: "wait4",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    72: "fcntl",
    73: "flock",
}
_GENERIC = {
    63: "read",
    64: "write",
    73: "ppoll",
    101: "nanosleep",
    207: "recvfrom",
    260: "wait4",
    98: "futex",
    115: "clock_nanosleep",
    22: "epoll_pwait",
    95: "waitid",
    25: "fcntl",
    32: "flock",
}
SYSTEM_CALLS = _X86_64 if os.uname().machine == "x86_64" else _GENERIC


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = DEADLINE_S) -> None:
    """Look until `condition` holds; fail with `what` was not seen after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not seen within {limit_s:g} s: {what}"
        time.sleep(LOOK_APART_S)


def system_call(pid: int, tid: int | None = None) -> str:
    """Name of the system call a thread (default: the main one) is in, 'running', or the number of one not listed."""
    first = Path(f"/proc/{pid}/task/{tid or pid}/syscall").read_text().split()[0]
    return SYSTEM_CALLS.get(int(first), first) if first.lstrip("-").isdigit() else first


def title(pid: int) -> str:
    """The command line with its arguments joined; empty for a zombie."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
