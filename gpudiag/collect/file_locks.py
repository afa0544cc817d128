"""The file locks that concern the recorded processes: the kernel's table, and who holds what through which descriptor."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeAlias

from msgspec.structs import replace

from gpudiag.collect import procfs
from gpudiag.collect.lock_table import parse_locks
from gpudiag.model.file import FileFact, FileLock
from gpudiag.model.process import FileDescriptor, Process
from gpudiag.model.reading import Failed, Ok, Unavailable

_LIMIT = 1 << 22

_FileKey: TypeAlias = tuple[str, int]
_LockKey: TypeAlias = tuple[str, int, str, str, int]


def read_file_locks() -> Ok[tuple[FileLock, ...]] | Unavailable | Failed:
    """/proc/locks. In a pid namespace the kernel leaves out locks that were taken by processes which it does not show."""
    started = time.perf_counter()
    try:
        raw = procfs.read_all("/proc/locks", _LIMIT)
    except OSError as error:
        return Unavailable(reason=f"/proc/locks cannot be read: {error.strerror}", help="ls -l /proc/locks; mount | grep proc")
    return Ok(value=parse_locks(raw), at=time.time(), took_s=time.perf_counter() - started)


def of_processes(
    locks: Iterable[FileLock], processes: Iterable[Process], polled: Iterable[FileFact] = ()
) -> tuple[FileLock, ...]:
    """The locks on files that the processes have open or poll for, with the path of the file and those that hold the lock.

    A lock that the table lacks but a descriptor shows is added, as taken by the process that holds it now.
    """
    paths: dict[_FileKey, str] = {(f.device, f.inode): f.path for f in polled if f.device is not None and f.inode is not None}
    holders: dict[_LockKey, list[int]] = {}
    unlisted: dict[_LockKey, FileLock] = {}
    for process in processes:
        for fd in process.fds.value if isinstance(process.fds, Ok) else ():
            if fd.device is not None and fd.inode is not None:
                paths.setdefault((fd.device, fd.inode), fd.target)
            _note_held(process.pid, fd, holders, unlisted)
    listed = [lock for lock in locks if (lock.device, lock.inode) in paths]
    for lock in listed:
        unlisted.pop(_key(lock), None)
    added = [replace(lock, pid=lock.pid or holders[key][0]) for key, lock in unlisted.items()]
    held = [replace(lock, holders=() if lock.blocked else tuple(holders.get(_key(lock), ()))) for lock in listed]
    held += [replace(lock, holders=tuple(holders[key])) for key, lock in zip(unlisted, added, strict=True)]
    return tuple(replace(lock, path=paths.get((lock.device, lock.inode))) for lock in held)


def _note_held(pid: int, fd: FileDescriptor, holders: dict[_LockKey, list[int]], unlisted: dict[_LockKey, FileLock]) -> None:
    for lock in fd.locks:
        key = _key(lock)
        pids = holders.setdefault(key, [])
        if pid not in pids:
            pids.append(pid)
        unlisted.setdefault(key, lock)


def _key(lock: FileLock) -> _LockKey:
    return lock.device, lock.inode, lock.kind, lock.mode, lock.pid
