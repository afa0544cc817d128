"""Threads asleep in futex(2): the word they sleep on and, for mutexes, the thread that owns it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from gpudiag.collect.memory import TargetMemory
from gpudiag.model.process import FutexWait, Syscall

_PRIVATE_OR_CLOCK = 128 | 256
"""FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, include/uapi/linux/futex.h."""
FUTEX_WAIT = 0
FUTEX_LOCK_PI = 6
FUTEX_WAIT_BITSET = 9
FUTEX_WAIT_REQUEUE_PI = 11
FUTEX_LOCK_PI2 = 13
_WAITS = frozenset({FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2})
_PI = frozenset({FUTEX_LOCK_PI, FUTEX_LOCK_PI2})

_TID_MASK = 0x3FFFFFFF
"""FUTEX_TID_MASK, include/uapi/linux/futex.h."""
_MUTEX_CONTENDED = 2
"""Value of a glibc low-level lock with waiters (nptl/lowlevellock.h, glibc 2.40): a waiter sleeps while it is 2."""
_OWNER_OFFSET = 8
"""struct __pthread_mutex_s {int lock; unsigned count; int owner; ...} (sysdeps/nptl/bits/struct_mutex.h, glibc 2.40)."""

_WAITV_ENTRY = 24
"""struct futex_waitv {u64 val; u64 uaddr; u32 flags; u32 reserved} (include/uapi/linux/futex.h, Linux 5.16)."""
_WAITV_MOST = 128


def futex_waits(
    syscalls: dict[int, Syscall], tids: AbstractSet[int], inner_tids: dict[int, int], memory: TargetMemory
) -> tuple[FutexWait, ...]:
    """One entry for each thread that sleeps on a readable futex word.

    `inner_tids` translates the thread ids that the target itself uses (its pid namespace) to those seen from here; an
    owner is believed only if it is a thread of this process.
    """
    found: list[FutexWait] = []
    for tid, call in syscalls.items():
        if tid not in tids:
            continue
        if call.name == "futex":
            wait = _plain(tid, call, inner_tids, memory)
        elif call.name == "futex_waitv":
            wait = _first_of_many(tid, call, memory)
        else:
            continue
        if wait is not None:
            found.append(wait)
    return tuple(found)


def _plain(tid: int, call: Syscall, inner_tids: dict[int, int], memory: TargetMemory) -> FutexWait | None:
    address, operation, expected = call.args[0], call.args[1] & 0xFFFFFFFF, call.args[2] & 0xFFFFFFFF
    command = operation & ~_PRIVATE_OR_CLOCK
    if command not in _WAITS:
        return None
    try:
        word = int.from_bytes(memory.read(address, 4), "little")
        owner = _owner(command, expected, word, address, memory)
    except OSError:
        return None
    return FutexWait(
        tid=tid,
        address=address,
        operation=operation,
        expected=expected,
        word=word,
        owner_tid=inner_tids.get(owner) if owner else None,
    )


def _owner(command: int, expected: int, word: int, address: int, memory: TargetMemory) -> int | None:
    if command in _PI:
        return word & _TID_MASK
    if command == FUTEX_WAIT and expected == _MUTEX_CONTENDED and word == _MUTEX_CONTENDED:
        return int.from_bytes(memory.read(address + _OWNER_OFFSET, 4), "little")
    return None


def _first_of_many(tid: int, call: Syscall, memory: TargetMemory) -> FutexWait | None:
    count = call.args[1] & 0xFFFFFFFF
    if not 0 < count <= _WAITV_MOST:
        return None
    try:
        entry = memory.read(call.args[0], _WAITV_ENTRY)
        address = int.from_bytes(entry[8:16], "little")
        word = int.from_bytes(memory.read(address, 4), "little")
    except OSError:
        return None
    return FutexWait(
        tid=tid,
        address=address,
        operation=int.from_bytes(entry[16:20], "little"),
        expected=int.from_bytes(entry[0:8], "little") & 0xFFFFFFFF,
        word=word,
    )
