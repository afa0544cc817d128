"""The form in which the kernel prints file locks, in /proc/locks and in fdinfo."""

from __future__ import annotations

from typing import Literal

from gpudiag.collect.procfs import text
from gpudiag.model.file import FileLock

_KINDS: dict[bytes, Literal["flock", "posix", "ofd", "lease"]] = {
    b"FLOCK": "flock",
    b"POSIX": "posix",
    b"OFDLCK": "ofd",
    b"LEASE": "lease",
}


def parse_locks(raw: bytes) -> tuple[FileLock, ...]:
    """Parse lines like '1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF' and, for requests, '1: -> FLOCK ...'.

    Lines of any other form are left out.
    """
    return tuple(lock for line in raw.splitlines() if (lock := _parse_line(line)) is not None)


def _parse_line(line: bytes) -> FileLock | None:
    fields = line.split()
    blocked = len(fields) > 1 and fields[1] == b"->"
    if blocked:
        del fields[1]
    if len(fields) < 6 or not fields[0].rstrip(b":").isdigit():
        return None
    device, _, inode = text(fields[5]).rpartition(":")
    if not (inode.isascii() and inode.isdigit()) or not fields[4].removeprefix(b"-").isdigit():
        return None
    return FileLock(
        id=int(fields[0].rstrip(b":")),
        kind=_KINDS.get(fields[1], "other"),
        mode=text(fields[3]),
        pid=int(fields[4]),
        device=device,
        inode=int(inode),
        blocked=blocked,
    )
