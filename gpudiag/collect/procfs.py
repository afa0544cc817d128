"""Raw reads of /proc: bounded, without pathlib, and nothing here can wait for the target.

Files that take the target's memory-map or exec lock (cmdline, environ, maps, mem, io, syscall) are not read in this
process: see `guarded`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from gpudiag.model.process import TaskState

STAT_LIMIT = 4096
STATUS_LIMIT = 16384
CGROUP_LIMIT = 16384

_STATES: dict[str, TaskState] = {
    "R": "R",
    "S": "S",
    "D": "D",
    "T": "T",
    "t": "t",
    "Z": "Z",
    "X": "X",
    "I": "I",
    "P": "P",
    "K": "K",
    "W": "W",
    "x": "x",
}
_PF_KTHREAD = 0x00200000
"""Flag of a kernel thread in field 9 of stat (include/linux/sched.h)."""
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """The fields of /proc/PID/stat (or task/TID/stat) that are used, numbered from 1 in proc(5).

    `start_ticks` (22) is in clock ticks after boot, `cpu_ticks` is utime (14) + stime (15), `exit_code` (52) is a wait
    status and 0 where the reader lacks ptrace-read rights.
    """

    pid: int
    name: str
    state: TaskState
    ppid: int
    pgid: int
    session: int
    minor_faults: int
    major_faults: int
    cpu_ticks: int
    start_ticks: int
    rss_bytes: int
    exit_code: int
    kernel_thread: bool


class Status(NamedTuple):
    """Lines of /proc/PID/status: Uid (real), NSpid (outermost first), TracerPid, CapEff as a bit mask."""

    uid: int
    effective_uid: int
    ns_pids: tuple[int, ...]
    tracer_pid: int
    cap_effective: int


def read_once(path: str, limit: int) -> bytes:
    """What one read of a file gives, at most `limit` bytes; enough for files that the kernel writes in one piece.

    Raises OSError (ENOENT or ESRCH once a process is gone, EACCES or EPERM without the right to look).
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


def read_all(path: str, limit: int) -> bytes:
    """A file that comes in pieces (maps, mountinfo, locks), at most `limit` bytes. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    parts: list[bytes] = []
    try:
        while limit > 0 and (piece := os.read(fd, min(limit, 1 << 16))):
            parts.append(piece)
            limit -= len(piece)
    finally:
        os.close(fd)
    return b"".join(parts)


def text(raw: bytes) -> str:
    """Bytes of the target as text that survives JSON: a byte that is no UTF-8 is written as a backslash, x and its number."""
    return raw.decode("utf-8", "backslashreplace")


def parse_stat(raw: bytes) -> Stat:
    """Parse a stat line. The name may hold blanks, parentheses and newlines, so it ends at the last ')'.

    Raises ValueError on anything that is no stat line.
    """
    opening = raw.find(b" (")
    closing = raw.rfind(b") ")
    if opening < 0 or closing < opening:
        raise ValueError("not a stat line")
    fields = raw[closing + 2 :].split()
    if len(fields) < 22:
        raise ValueError("stat line is cut short")
    return Stat(
        pid=int(raw[:opening]),
        name=text(raw[opening + 2 : closing]),
        state=_STATES.get(chr(fields[0][0]), "?"),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        session=int(fields[3]),
        minor_faults=int(fields[7]),
        major_faults=int(fields[9]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_SIZE,
        exit_code=int(fields[49]) if len(fields) > 49 else 0,
        kernel_thread=bool(int(fields[6]) & _PF_KTHREAD),
    )


def parse_status(raw: bytes) -> Status:
    """Parse /proc/PID/status. Lines that are missing (NSpid before Linux 4.1) give empty values.

    Raises ValueError for a line that is there and holds no number.
    """
    uid = effective_uid = -1
    ns_pids: tuple[int, ...] = ()
    tracer_pid = cap_effective = 0
    for line in raw.split(b"\n"):
        name, _, rest = line.partition(b":")
        if name == b"Uid":
            uid, effective_uid = (int(n) for n in rest.split()[:2])
        elif name == b"NSpid":
            ns_pids = tuple(int(n) for n in rest.split())
        elif name == b"TracerPid":
            tracer_pid = int(rest)
        elif name == b"CapEff":
            cap_effective = int(rest, 16)
    return Status(uid, effective_uid, ns_pids, tracer_pid, cap_effective)


def read_stat(pid: int) -> Stat:
    """Raises ProcessLookupError or FileNotFoundError if there is no such process."""
    return parse_stat(read_once(f"/proc/{pid}/stat", STAT_LIMIT))


def schedule_ns(pid: int, tid: int) -> tuple[int, int] | None:
    """Nanoseconds that a thread has spent on a processor and ready for one (schedstat), None in a kernel that does not count.

    Raises OSError if the thread is gone.
    """
    try:
        ran, ready = read_once(f"/proc/{pid}/task/{tid}/schedstat", STAT_LIMIT).split()[:2]
    except (FileNotFoundError, ValueError):
        return None
    return int(ran), int(ready)


def run_ns(pid: int, tid: int) -> int | None:
    """The first of `schedule_ns`."""
    times = schedule_ns(pid, tid)
    return times[0] if times is not None else None


def read_status(pid: int) -> Status:
    return parse_status(read_once(f"/proc/{pid}/status", STATUS_LIMIT))


def namespace_inode(pid: int | str, kind: str) -> int | None:
    """Inode of a namespace ('pid', 'net', 'mnt' ...), or None where it may not be read."""
    try:
        link = os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None
    digits = link.partition("[")[2].rstrip("]")
    return int(digits) if digits.isdigit() else None


def cgroup(pid: int | str) -> str | None:
    """The cgroup v2 path of a process, or the longest v1 path (the one that names a container)."""
    try:
        raw = read_all(f"/proc/{pid}/cgroup", CGROUP_LIMIT)
    except OSError:
        return None
    paths = [text(line.split(b":", 2)[2]) for line in raw.splitlines() if line.count(b":") >= 2]
    return max(paths, key=len, default=None)


def pids() -> Iterator[int]:
    """Every pid that /proc shows, in no order."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)
