"""Dying with the parent: a child that outlives a killed gpudiag could hold on to the target."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""include/uapi/linux/prctl.h. The signal comes when the *thread* that started the child ends, not only the process."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exit at once if `parent` is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)
