"""The victim waits for a file lock.

call=flock | lockf | exists | filelock: flock(2), fcntl(2), a loop until the file is gone, or filelock's loop around flock(2)
holder=alive | dead: a process of the tree that has the lock and sleeps or works (does=sleep | work), or one that was killed.
    A dead holder's flock lives on in its child, which has the same open file; its fcntl lock would be gone, so there is
    no such case.
holder=outside: whoever has the file in the option `path` locked, no process of the tree
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time

from tests.programs.common import HOURS_S, Seat, idle_company, run_program

POLL_S = 0.05


class LockFile:
    """One file, three ways to lock it."""

    def __init__(self, path: str, call: str) -> None:
        self.path = path
        self.call = call

    def take(self) -> int:
        """Return the descriptor that holds the lock."""
        if self.call == "exists":
            return os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        handle = os.open(self.path, os.O_CREAT | os.O_RDWR)
        self.lock(handle)
        return handle

    def lock(self, handle: int) -> None:
        if self.call == "flock":
            fcntl.flock(handle, fcntl.LOCK_EX)
        else:
            fcntl.lockf(handle, fcntl.LOCK_EX)

    def stand_by(self) -> None:
        """Wait until whoever has the lock gives it back."""
        if self.call == "exists":
            while os.path.exists(self.path):
                time.sleep(POLL_S)
        elif self.call == "filelock":
            from filelock import FileLock

            FileLock(self.path).acquire()
        else:
            self.lock(os.open(self.path, os.O_RDWR))


def victim(seat: Seat) -> None:
    idle_company()
    path = seat.options.get("path") or os.path.join(seat.options["directory"], "lock")
    lock = LockFile(path, seat.options.get("call", "flock"))
    if seat.options.get("holder") == "outside":
        seat.arrive("any", path=path)
        lock.stand_by()
        return
    told, told_far = os.pipe()
    dies = seat.options.get("holder", "alive") == "dead"
    process = seat.launch("holder", path, str(told_far), title="build_kernels", fds=(told_far,))
    os.close(told_far)
    heir = int(os.read(told, 32) or 0)
    if dies:
        process.kill()
        process.wait()
    awaits = ("heir",) if heir else () if dies else ("holder",)
    seat.arrive(awaits=awaits, path=path, holder_pid=process.pid, heir_pid=heir)
    lock.stand_by()


def holder(seat: Seat) -> None:
    path, told = seat.extra
    call = seat.options.get("call", "flock")
    handle = LockFile(path, call).take()
    heir = 0
    if call == "flock" and seat.options.get("holder") == "dead":
        command = seat.command("heir", title="build_cache")
        fds = (handle, seat.ready_fd, seat.lifeline_fd)
        heir = subprocess.Popen(command, executable=seat.options["python"], pass_fds=fds).pid
    os.write(int(told), str(heir).encode())
    if seat.options.get("holder") == "dead":
        time.sleep(HOURS_S)
    if seat.options.get("does", "sleep") == "work":
        seat.arrive("run")
        total = 0
        while True:
            total += sum(range(1000))
    seat.arrive()
    time.sleep(HOURS_S)


def heir_body(seat: Seat) -> None:
    seat.arrive()
    time.sleep(HOURS_S)


run_program(victim, holder=holder, heir=heir_body)
