"""One process from /proc, without the parts that need the guarded child."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal, TypeAlias

import msgspec

from gpudiag.collect import procfs
from gpudiag.collect.attempt import reading
from gpudiag.collect.fds import read_fds
from gpudiag.collect.mounts import read_mounts
from gpudiag.collect.threads import read_threads
from gpudiag.model.process import GONE, FileDescriptor, Process
from gpudiag.model.reading import Failed, Ok, Unavailable

Source = Literal["stacks", "memory", "fds", "syscalls", "environ", "sockets", "locks", "io", "nccl", "gpus", "gpm", "flight"]
"""Sources that a look can leave out on purpose."""

FdReading: TypeAlias = Ok[tuple[FileDescriptor, ...]] | Unavailable | Failed

WITHHELD = Unavailable(reason="withheld", help="run gpudiag without withholding this source")


def read_light(pid: int) -> Process | None:
    """What stat, status and the namespaces say; None if there is no such process, or /proc hides it (hidepid)."""
    try:
        stat = procfs.read_stat(pid)
        status = procfs.read_status(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return Process(
        pid=pid,
        ppid=stat.ppid,
        start_ticks=stat.start_ticks,
        name=stat.name,
        state=stat.state,
        uid=status.uid,
        cpu_ticks=stat.cpu_ticks,
        pgid=stat.pgid,
        session=stat.session,
        exit_code=_exit_code(pid, stat),
        tracer_pid=status.tracer_pid,
        ns_pids=status.ns_pids,
        pid_namespace=procfs.namespace_inode(pid, "pid"),
        net_namespace=procfs.namespace_inode(pid, "net"),
        rss_bytes=stat.rss_bytes,
        minor_faults=stat.minor_faults,
        major_faults=stat.major_faults,
    )


def read_full(pid: int, withhold: AbstractSet[Source]) -> Process | None:
    """The same with cgroup, threads and descriptors."""
    process = read_light(pid)
    if process is None:
        return None
    try:
        threads, wchans_readable = read_threads(pid)
    except (FileNotFoundError, ProcessLookupError):
        threads, wchans_readable = (), True
    return msgspec.structs.replace(
        process,
        cgroup=procfs.cgroup(pid),
        threads=threads,
        wchans_readable=wchans_readable,
        fds=exited(pid) if process.state in GONE else WITHHELD if "fds" in withhold else fds_reading(pid),
    )


def exited(pid: int) -> Unavailable:
    """Why a zombie shows nothing but its state and exit status."""
    return Unavailable(reason=f"process {pid} has exited and waits to be reaped", help=f"ps -o pid,ppid,stat,args -p {pid}")


def fds_reading(pid: int) -> FdReading:
    """The open descriptors of a process."""
    return reading(pid, lambda: read_fds(pid, read_mounts(pid)))


def _exit_code(pid: int, stat: procfs.Stat) -> int | None:
    """The wait status of a zombie. 0 also stands for 'may not be read', so it counts only with ptrace-read rights."""
    if stat.state != "Z":
        return None
    return stat.exit_code if stat.exit_code or procfs.namespace_inode(pid, "user") is not None else None
