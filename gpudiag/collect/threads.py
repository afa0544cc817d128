"""The threads of a process: state, CPU time, and the kernel function each one sleeps in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from gpudiag.collect import procfs
from gpudiag.model.process import TaskState, Thread

_RUNNING: frozenset[TaskState] = frozenset({"R"})
_MOST_THREADS = 20000


class Threads(NamedTuple):
    """All tasks of a process, and whether the kernel says where they sleep."""

    threads: tuple[Thread, ...]
    wchans_readable: bool
    """False if the kernel hides where sleeping threads sleep (no ptrace-read rights, or built without it)."""


def read_threads(pid: int) -> Threads:
    """Every task of `pid`; a thread that ends meanwhile is left out. Raises OSError if the process is gone."""
    threads = [thread for tid in tids(pid) if (thread := _read_thread(pid, tid)) is not None]
    asleep = [t for t in threads if t.state not in _RUNNING]
    return Threads(tuple(threads), not asleep or any(t.wchan for t in asleep))


def tids(pid: int) -> list[int]:
    """Ids of the tasks of `pid`, ascending. Raises OSError if the process is gone."""
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))[:_MOST_THREADS]


def inner_tids(pid: int, tids: Iterable[int]) -> dict[int, int]:
    """Thread ids as the process itself knows them, in its own pid namespace, mapped to the ids seen from here.

    Mutexes and Python record the former. Raises OSError if the process is gone.
    """
    if len(procfs.read_status(pid).ns_pids) <= 1:
        return {tid: tid for tid in tids}
    found: dict[int, int] = {}
    for tid in tids:
        try:
            status = procfs.parse_status(procfs.read_once(f"/proc/{pid}/task/{tid}/status", procfs.STATUS_LIMIT))
        except (FileNotFoundError, ProcessLookupError):
            continue
        if status.ns_pids:
            found[status.ns_pids[-1]] = tid
    return found


def _read_thread(pid: int, tid: int) -> Thread | None:
    base = f"/proc/{pid}/task/{tid}/"
    try:
        stat = procfs.parse_stat(procfs.read_once(base + "stat", procfs.STAT_LIMIT))
        times = procfs.schedule_ns(pid, tid)
        return Thread(
            tid=tid,
            name=stat.name,
            state=stat.state,
            cpu_ticks=stat.cpu_ticks,
            run_ns=times[0] if times is not None else None,
            ready_ns=times[1] if times is not None else None,
            wchan=_wchan(base),
        )
    except (FileNotFoundError, ProcessLookupError):
        return None


def _wchan(base: str) -> str | None:
    try:
        raw = procfs.read_once(base + "wchan", 128)
    except PermissionError:
        return None
    return None if raw in (b"", b"0") else procfs.text(raw)
