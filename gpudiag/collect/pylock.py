"""Python lock objects in the target's memory: who owns them, whether they are taken, where their waiters sleep.

Structures, 64-bit, checked on live locks by the tests:

- `_thread.lock` {PyObject_HEAD; PyThread_type_lock lock_lock; ...} and `_thread.RLock` {PyObject_HEAD;
  PyThread_type_lock rlock_lock; rlock_owner; rlock_count; ...}: Modules/_threadmodule.c of CPython 3.11 to 3.13.
- `_thread.lock` {PyObject_HEAD; PyMutex} and `_thread.RLock` {PyObject_HEAD; PyMutex; thread; level}: the same file and
  Include/internal/pycore_lock.h of 3.14; bit 0 of a PyMutex means locked. A waiter sleeps on a semaphore of its own, in
  {void *park_arg; uintptr_t addr; semaphore; ...} on its stack (struct wait_entry, Python/parking_lot.c), where `addr` is
  the PyMutex.
- PyThread_type_lock is a pointer to an unnamed sem_t of value 1 when free (Python/thread_pthread.h, USE_STATES).
  The word that the kernel sees a waiter sleep on is the value, at the start of the sem_t (nptl/sem_waitcommon.c, glibc
  2.21 on; src/thread/sem_timedwait.c, musl).
- `_multiprocessing.SemLock` {PyObject_HEAD; sem_t *handle; unsigned long last_tid; int count; int maxvalue; int kind;
  ...}: Modules/_multiprocessing/semaphore.c, 3.11 to 3.14. `last_tid` and `count` are of this process only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pyobject import PyObjects
from gpudiag.collect.pystructs import not_mapped

Kind = Literal["lock", "rlock", "condition", "semaphore", "unknown"]

_STATE: Final = 16
"""First field after PyObject_HEAD."""
_RLOCK_READ: Final = 40
_SEMLOCK_READ: Final = 44
_PARKED_FOR: Final = 8
"""From the semaphore of a parked thread back to the address it waits for."""
_MAX_DEPTH: Final = 4

_INNER: Final[dict[str, tuple[str, Kind]]] = {
    "threading.Condition": ("_lock", "condition"),
    "multiprocessing.synchronize.Condition": ("_lock", "condition"),
    "multiprocessing.synchronize.Semaphore": ("_semlock", "semaphore"),
    "multiprocessing.synchronize.SemLock": ("_semlock", "lock"),
    "threading._RLock": ("_block", "rlock"),
    # logging.Handler.acquire() takes it (Lib/logging/__init__.py).
    "logging.Handler": ("lock", "rlock"),
}
"""Types that guard with the lock in an attribute; `kind` is what the program calls the whole."""


@dataclass(frozen=True, slots=True)
class PyLock:
    """The innermost lock behind an object. `address` is that of its Python object; the other fields as in LockUse.

    `mutex` is the address of its PyMutex, from CPython 3.14 on. `across` says that other processes may have it too.
    """

    address: int
    kind: Kind
    word: int | None = None
    owner_ident: int | None = None
    locked: bool | None = None
    mutex: int | None = None
    across: bool = False


def asleep_on(memory: TargetMemory, lock: PyLock, word: int) -> bool:
    """Whether a thread that sleeps on the futex `word` waits for this lock."""
    if lock.mutex is None:
        return lock.word == word
    try:
        return memory.pointer(word - _PARKED_FOR) == lock.mutex
    except OSError as error:
        if not_mapped(error):
            return False
        raise


def lock_behind(objects: PyObjects, memory: TargetMemory, address: int, depth: int = 0) -> PyLock | None:
    """The lock that `with object:` or `object.acquire()` takes, or None if the object is no lock that is known here."""
    names = objects.type_names(address) or ()
    for name in names:
        if name in _INNER and depth < _MAX_DEPTH:
            return _wrapped(objects, memory, address, name, depth)
        if name == "threading.Semaphore":
            return _counting(objects, address)
        if name in _READ:
            try:
                return _READ[name][objects.layout.mutex_locks](memory, address)
            except OSError as error:
                if not_mapped(error):
                    return None
                raise
    return None


def _wrapped(objects: PyObjects, memory: TargetMemory, address: int, name: str, depth: int) -> PyLock | None:
    attribute, kind = _INNER[name]
    inner = objects.attribute(address, attribute)
    lock = lock_behind(objects, memory, inner, depth + 1) if inner is not None else None
    if lock is None or name == "multiprocessing.synchronize.SemLock":
        return lock
    if name == "threading._RLock" and (owner := objects.attribute(address, "_owner")) is not None:
        return replace(lock, kind=kind, owner_ident=objects.integer(owner) or None)
    return replace(lock, kind=kind)


def _counting(objects: PyObjects, address: int) -> PyLock:
    """A threading.Semaphore is taken while its counter is 0; waiters sleep on a lock of their own each."""
    counter = objects.attribute(address, "_value")
    value = objects.integer(counter) if counter is not None else None
    return PyLock(address, "semaphore", locked=None if value is None else value == 0)


def _lock(memory: TargetMemory, address: int) -> PyLock:
    word = memory.pointer(address + _STATE)
    return PyLock(address, "lock", word, locked=_taken(memory, word))


def _rlock(memory: TargetMemory, address: int) -> PyLock:
    word, owner, count = struct.unpack_from("<QQQ", memory.read(address, _RLOCK_READ), _STATE)
    return PyLock(address, "rlock", word, owner_ident=owner if count else None, locked=_taken(memory, word))


def _mutex_lock(memory: TargetMemory, address: int) -> PyLock:
    bits = memory.read(address + _STATE, 1)[0]
    return PyLock(address, "lock", locked=bool(bits & 1), mutex=address + _STATE)


def _mutex_rlock(memory: TargetMemory, address: int) -> PyLock:
    bits, owner = struct.unpack_from("<BxxxxxxxQ", memory.read(address, _RLOCK_READ), _STATE)
    locked = bool(bits & 1)
    return PyLock(address, "rlock", owner_ident=owner if locked else None, locked=locked, mutex=address + _STATE)


def _semlock(memory: TargetMemory, address: int) -> PyLock:
    word, thread, count, most, kind = struct.unpack_from("<QQiii", memory.read(address, _SEMLOCK_READ), _STATE)
    # SEM_RECURSIVE_MUTEX is 0, SEM_STATE 1 (Lib/multiprocessing/synchronize.py). A mutex knows its thread if it is here.
    name: Kind = "rlock" if kind == 0 else "lock" if most == 1 else "semaphore"
    owner = thread if count > 0 and most == 1 else None
    return PyLock(address, name, word, owner_ident=owner, locked=_taken(memory, word), across=True)


def _taken(memory: TargetMemory, semaphore: int) -> bool | None:
    """Whether the value of a sem_t is 0; None for a value that no lock has."""
    value = int.from_bytes(memory.read(semaphore, 4), "little")
    return value == 0 if value < 1 << 16 else None


_READ: Final[dict[str, tuple[Callable[[TargetMemory, int], PyLock], Callable[[TargetMemory, int], PyLock]]]] = {
    "_thread.lock": (_lock, _mutex_lock),
    "_thread.RLock": (_rlock, _mutex_rlock),
    "_multiprocessing.SemLock": (_semlock, _semlock),
}
"""How to read a lock that is a semaphore, and one that is a PyMutex."""
