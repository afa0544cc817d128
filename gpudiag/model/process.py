"""Processes and threads as the kernel shows them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.model.communicator import Nccl
from gpudiag.model.file import FileLock
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable
from gpudiag.model.stack import FilePoll, LockUse, PyStack

TaskState = Literal["R", "S", "D", "T", "t", "Z", "X", "I", "P", "K", "W", "x", "?"]
"""State letter of /proc/PID/stat: R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, X dead, I idle."""

STOPPED: frozenset[str] = frozenset({"T", "t"})
GONE: frozenset[str] = frozenset({"Z", "X", "x"})


class Syscall(Struct, frozen=True, kw_only=True):
    """The system call a thread is inside: number and name for the machine's architecture, six raw arguments."""

    number: int
    name: str
    args: tuple[int, ...]


class FutexWait(Struct, frozen=True, kw_only=True):
    """A thread asleep in futex(2).

    `address` is the futex word in the target's address space, `word` its value now, `expected` the value it
    slept on. `owner_tid` is the thread that a pthread mutex (or PI futex) records as its owner; None where the word
    has no owner (semaphore, condition variable) or it could not be read.
    """

    tid: int
    address: int
    operation: int
    expected: int
    word: int
    owner_tid: int | None = None


class Sleep(Struct, frozen=True, kw_only=True):
    """A thread asleep until a moment that it chose itself (clock_nanosleep): `left_s` seconds after it was read."""

    tid: int
    left_s: float


class IoCounters(Struct, frozen=True, kw_only=True):
    """/proc/PID/io, in bytes. `read_bytes` reached the disk, `read_chars` were asked for."""

    read_chars: int
    write_chars: int
    read_bytes: int
    write_bytes: int


class FileDescriptor(Struct, frozen=True, kw_only=True):
    """One open descriptor. `target` is the link text of /proc/PID/fd/N; `inode` is set for sockets, pipes and files.

    `device` is 'major:minor' in hexadecimal as /proc/locks prints it, for regular files only.
    """

    fd: int
    kind: Literal["file", "pipe", "socket", "device", "anon", "other"]
    target: str
    inode: int | None = None
    device: str | None = None
    readable: bool = True
    writable: bool = True
    watches: tuple[int, ...] = ()
    """The descriptors that an epoll instance watches."""
    locks: tuple[FileLock, ...] = ()
    """File locks that are held through it (/proc/PID/fdinfo), whoever took them."""


class Thread(Struct, frozen=True, kw_only=True):
    """One task of a process. `cpu_ticks` is utime + stime in clock ticks; `name` is cut at 15 bytes by the kernel."""

    tid: int
    name: str
    state: TaskState
    cpu_ticks: int
    run_ns: int | None = None
    """Nanoseconds on a processor since it was created (/proc/PID/task/TID/schedstat): unchanged means it never woke up."""
    ready_ns: int | None = None
    """Nanoseconds it was ready to run and got no processor: on a crowded machine a busy thread shows here."""
    wchan: str | None = None
    """Kernel function it sleeps in; None while it runs or where the kernel does not say (see `Process.wchans_readable`)."""


class Process(Struct, frozen=True, kw_only=True):
    """One process at one instant.

    `pid` is as seen by the observer; `ns_pids` is the NSpid line, outermost first. `start_ticks` (field 22 of
    /proc/PID/stat, clock ticks after boot) tells a reused pid from the same process. `cmdline` is as found in memory:
    setproctitle pads it and overwrites the environment behind it.
    """

    pid: int
    ppid: int
    start_ticks: int
    name: str
    state: TaskState
    uid: int
    cpu_ticks: int
    pgid: int = 0
    session: int = 0
    exit_code: int | None = None
    tracer_pid: int = 0
    ns_pids: tuple[int, ...] = ()
    pid_namespace: int | None = None
    net_namespace: int | None = None
    cgroup: str | None = None
    rss_bytes: int = 0
    minor_faults: int = 0
    major_faults: int = 0
    threads: tuple[Thread, ...] = ()
    wchans_readable: bool = True
    cmdline: Ok[tuple[str, ...]] | Unavailable | Failed = NOT_ASKED
    exe: Ok[str] | Unavailable | Failed = NOT_ASKED
    environ: Ok[dict[str, str]] | Unavailable | Failed = NOT_ASKED
    """Allow-listed variables only, as they were at exec."""
    io: Ok[IoCounters] | Unavailable | Failed = NOT_ASKED
    fds: Ok[tuple[FileDescriptor, ...]] | Unavailable | Failed = NOT_ASKED
    shared_memory: Ok[tuple[str, ...]] | Unavailable | Failed = NOT_ASKED
    """Names of mapped /dev/shm and memfd objects."""
    libraries: Ok[tuple[str, ...]] | Unavailable | Failed = NOT_ASKED
    """Mapped shared libraries that identify an engine or a backend."""
    syscalls: Ok[dict[int, Syscall]] | Unavailable | Failed = NOT_ASKED
    """By tid; a thread that is running has no entry."""
    polls: Ok[dict[int, tuple[int, ...]]] | Unavailable | Failed = NOT_ASKED
    """By tid: the descriptors a thread waits for in poll(2), select(2) or epoll_wait(2)."""
    futexes: Ok[tuple[FutexWait, ...]] | Unavailable | Failed = NOT_ASKED
    sleeps: Ok[tuple[Sleep, ...]] | Unavailable | Failed = NOT_ASKED
    stacks: Ok[tuple[PyStack, ...]] | Unavailable | Failed = NOT_ASKED
    python_version: str | None = None
    lock_uses: Ok[tuple[LockUse, ...]] | Unavailable | Failed = NOT_ASKED
    file_polls: Ok[tuple[FilePoll, ...]] | Unavailable | Failed = NOT_ASKED
    nccl: Ok[tuple[Nccl, ...]] | Unavailable | Failed = NOT_ASKED
    """One entry for each copy of libnccl that is mapped; none for a process without NCCL."""

    @property
    def title(self) -> str:
        """The command line as one string without the padding of setproctitle, or the kernel's 15-byte name."""
        if isinstance(self.cmdline, Ok) and self.cmdline.value:
            return " ".join(self.cmdline.value).strip()
        return self.name

    @property
    def main_thread(self) -> Thread | None:
        return next((t for t in self.threads if t.tid == self.pid), None)

    def stack_of(self, tid: int) -> PyStack | None:
        """The Python stack of one thread, or None if it has none or stacks could not be read."""
        if not isinstance(self.stacks, Ok):
            return None
        return next((s for s in self.stacks.value if s.tid == tid), None)
