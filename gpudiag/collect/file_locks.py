"""The kernel's table of file locks, /proc/locks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

from gpudiag.collect import procfs
from gpudiag.model.file import FileLock
from gpudiag.model.process import Process
from gpudiag.model.reading import Failed, Ok, Unavailable

_LIMIT = 1 << 22
_KINDS: dict[bytes, Literal["flock", "posix", "ofd", "lease"]] = {
    b"FLOCK": "flock",
    b"POSIX": "posix",
    b"OFDLCK": "ofd",
    b"LEASE": "lease",
}


def read_file_locks() -> Ok[tuple[FileLock, ...]] | Unavailable | Failed:
    """Every lock that the observer's pid namespace shows; holders outside it have no pid and are left out by the kernel."""
    started = time.perf_counter()
    try:
        raw = procfs.read_all("/proc/locks", _LIMIT)
    except OSError as error:
        return Unavailable(reason=f"/proc/locks cannot be read: {error.strerror}", help="ls -l /proc/locks; mount | grep proc")
    return Ok(value=parse_locks(raw), at=time.time(), took_s=time.perf_counter() - started)


def parse_locks(raw: bytes) -> tuple[FileLock, ...]:
    """Parse lines like '1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF' and, for requests, '1: -> FLOCK ...'."""
    return tuple(lock for line in raw.splitlines() if (lock := _parse_line(line)) is not None)


def _parse_line(line: bytes) -> FileLock | None:
    fields = line.split()
    blocked = len(fields) > 1 and fields[1] == b"->"
    if blocked:
        del fields[1]
    if len(fields) < 6 or not fields[0].rstrip(b":").isdigit():
        return None
    device, _, inode = procfs.text(fields[5]).rpartition(":")
    if not inode.isdigit():
        return None
    return FileLock(
        id=int(fields[0].rstrip(b":")),
        kind=_KINDS.get(fields[1], "other"),
        mode=procfs.text(fields[3]),
        pid=int(fields[4]),
        device=device,
        inode=int(inode),
        blocked=blocked,
    )


def with_paths(locks: Iterable[FileLock], processes: Iterable[Process]) -> tuple[FileLock, ...]:
    """The locks on files that a process has open, with the path of the file; all others have nothing to do with them."""
    paths: dict[tuple[str, int], str] = {}
    for process in processes:
        if isinstance(process.fds, Ok):
            for fd in process.fds.value:
                if fd.device is not None and fd.inode is not None:
                    paths.setdefault((fd.device, fd.inode), fd.target)
    return tuple(
        FileLock(
            id=lock.id,
            kind=lock.kind,
            mode=lock.mode,
            pid=lock.pid,
            device=lock.device,
            inode=lock.inode,
            blocked=lock.blocked,
            path=path,
        )
        for lock in locks
        if (path := paths.get((lock.device, lock.inode))) is not None
    )
