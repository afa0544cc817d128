"""The few facts of /proc that tell whether the demo's own processes have come to rest."""

from __future__ import annotations

import os
from pathlib import Path

GONE = ("Z", "X", "x")
_STATE, _SESSION = 0, 3


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; None if the process is gone or hidden (hidepid)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return text.rpartition(b")")[2].decode("ascii").split()


def state_of(pid: int) -> str:
    """State letter of the main thread; X if the process is gone."""
    fields = stat_fields(pid)
    return fields[_STATE] if fields else "X"


def session_members(session: int) -> list[int]:
    """Pids of all processes of a session, zombies included."""
    found = []
    for entry in os.listdir("/proc"):
        fields = stat_fields(int(entry)) if entry.isdigit() else None
        if fields and int(fields[_SESSION]) == session:
            found.append(int(entry))
    return sorted(found)


def posture(pid: int) -> tuple[tuple[int, str, str], ...]:
    """(tid, state, number of the system call) of every thread; the number is '?' where the kernel will not say."""
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except FileNotFoundError:
        return ()
    return tuple(_thread_posture(pid, tid) for tid in tids)


def _thread_posture(pid: int, tid: int) -> tuple[int, str, str]:
    task = Path(f"/proc/{pid}/task/{tid}")
    try:
        state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0].decode("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return tid, "X", "?"
    try:
        call = (task / "syscall").read_bytes().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return tid, state, "?"
    return tid, state, call[0].decode("ascii") if call else "?"


def asleep(look: tuple[tuple[int, str, str], ...]) -> bool:
    """Whether the main thread of a posture sleeps."""
    return bool(look) and look[0][1] in ("S", "D")
