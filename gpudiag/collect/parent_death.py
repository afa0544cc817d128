"""Dying with the parent: a child that outlives a killed gpudiag could hold on to the target."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
"""include/uapi/linux/prctl.h. The signal comes when the *thread* that started the child ends, not only the process."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exit at once if `parent` is gone."""
    _ask_for_signal(ctypes.CDLL(None, use_errno=True))
    if os.getppid() != parent:
        sys.exit(0)


def dying_with_me() -> Callable[[], None]:
    """The same for a program that knows nothing of it: a `preexec_fn` for a child of this thread.

    The library is loaded before the fork, so that the child only makes two system calls.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def before_exec() -> None:
        _ask_for_signal(libc)
        if os.getppid() != parent:
            os._exit(0)

    return before_exec


def _ask_for_signal(libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
