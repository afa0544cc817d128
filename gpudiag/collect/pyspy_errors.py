"""Why py-spy gave no stacks, from what it wrote to stderr (py-spy 0.4.3 exits with 1 for every reason)."""

from __future__ import annotations

import os

from gpudiag.collect import access, procfs
from gpudiag.model.process import GONE, STOPPED
from gpudiag.model.reading import Failed, Unavailable

_REFUSED = ("permission denied", "operation not permitted", "os error 13", "os error 1)")
_VANISHED = ("no such process", "os error 3)", "no such file or directory", "os error 2)")
_NO_PYTHON = ("failed to find python version", "failed to locate", "doesn't appear to be a python")
_SAID_LIMIT = 300


def classify(pid: int, stderr: str) -> Unavailable | Failed:
    """The reason a dump of `pid` failed. Failed means: it may work when tried again."""
    said = stderr.lower()
    if "failed to suspend process" in said:
        return _not_suspended(pid)
    if any(word in said for word in _REFUSED):
        return access.refused(pid, attach=True)
    if any(word in said for word in _VANISHED) and (ended := _ended(pid)) is not None:
        return ended
    if any(word in said for word in _NO_PYTHON):
        return Unavailable(
            reason=f"py-spy finds no Python that it knows in process {pid}",
            help=f"pip install -U py-spy && py-spy dump --pid {pid}",
        )
    return Failed(error=f"py-spy: {_gist(stderr)}")


def _not_suspended(pid: int) -> Unavailable | Failed:
    try:
        stat, status = procfs.read_stat(pid), procfs.read_status(pid)
    except OSError:
        return access.gone(pid)
    if status.tracer_pid and status.tracer_pid != os.getpid():
        return Unavailable(
            reason=f"process {pid} is already traced by process {status.tracer_pid}",
            help=f"ps -p {status.tracer_pid} -o args=; detach it, or leave out --pause and --native",
        )
    if stat.state in STOPPED:
        return Unavailable(
            reason=f"process {pid} is stopped, so it cannot be paused for a blocking read",
            help=f"gpudiag attach {pid}",
        )
    if _filtered():
        return Unavailable(
            reason=f"process {pid} cannot be stopped; a seccomp filter on gpudiag may deny ptrace",
            help="--cap-add=SYS_PTRACE or --security-opt seccomp=unconfined for the container that gpudiag runs in",
        )
    return Failed(error=f"py-spy could not suspend process {pid}")


def _filtered() -> bool:
    """Whether gpudiag, and with it py-spy, runs under a seccomp filter ('Seccomp' in proc(5) is 2)."""
    return b"\nSeccomp:\t2" in procfs.read_once("/proc/self/status", procfs.STATUS_LIMIT)


def _ended(pid: int) -> Unavailable | None:
    try:
        stat = procfs.read_stat(pid)
    except OSError:
        return access.gone(pid)
    if stat.state in GONE:
        return Unavailable(reason=f"process {pid} is a zombie: it has exited", help=f"ps -o pid,ppid,stat,args -p {stat.ppid}")
    return None


def _gist(stderr: str) -> str:
    """The error and its causes on one line, without the backtrace."""
    kept: list[str] = []
    for line in stderr.splitlines():
        if line.startswith("Stack backtrace"):
            break
        words = line.strip()
        if words and words != "Caused by:":
            kept.append(words.removeprefix("Error: "))
    return "; ".join(kept)[:_SAID_LIMIT] or "no output"
