"""Threads that sleep until a moment: how long that still is, from the argument of their system call."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from gpudiag.collect.memory import TargetMemory
from gpudiag.model.process import Sleep, Syscall

_ABSOLUTE: Final = 1
"""TIMER_ABSTIME, include/uapi/linux/time.h. CPython sleeps until a moment, not for a time, since 3.11 (Modules/timemodule.c)."""
_CLOCKS: Final = frozenset({time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME})
_TIMESPEC: Final = struct.Struct("=qq")
_LONGEST_S: Final = 10 * 365 * 86400.0


def sleeps(syscalls: Mapping[int, Syscall], tids: AbstractSet[int], memory: TargetMemory) -> tuple[Sleep, ...]:
    """One entry for each thread in clock_nanosleep(2) with an absolute time on a clock that runs the same here."""
    found = []
    for tid, call in syscalls.items():
        if tid in tids and call.name == "clock_nanosleep" and call.args[1] & _ABSOLUTE and call.args[0] in _CLOCKS:
            try:
                seconds, nanoseconds = _TIMESPEC.unpack(memory.read(call.args[2], _TIMESPEC.size))
            except OSError:
                continue
            left_s = seconds + nanoseconds / 1e9 - time.clock_gettime(call.args[0])
            if 0 <= left_s <= _LONGEST_S:
                found.append(Sleep(tid=tid, left_s=round(left_s, 1)))
    return tuple(found)
