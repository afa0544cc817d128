"""Look-ups over one snapshot: who holds the other end of a descriptor, who owns an inode, who is whose child."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from gpudiag.model import node
from gpudiag.model.network import Socket
from gpudiag.model.node import Node
from gpudiag.model.process import GONE, STOPPED, FileDescriptor, Process, Syscall, Thread
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Snapshot

LOOPBACK = ("127.", "[::1]", "::1", "[::ffff:127.")


class Index:
    """One snapshot, arranged for questions. Built once, read by every kind of wait."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.by_pid: dict[int, Process] = {p.pid: p for p in snapshot.processes}

    @cached_property
    def holders(self) -> dict[int, tuple[tuple[int, FileDescriptor], ...]]:
        """By inode of a pipe or socket: every (pid, descriptor) that has it open."""
        found: dict[int, list[tuple[int, FileDescriptor]]] = defaultdict(list)
        for process in self.snapshot.processes:
            if isinstance(process.fds, Ok):
                for fd in process.fds.value:
                    if fd.inode is not None and fd.kind in ("pipe", "socket"):
                        found[fd.inode].append((process.pid, fd))
        return {inode: tuple(who) for inode, who in found.items()}

    @cached_property
    def sockets(self) -> dict[int, Socket]:
        reading = self.snapshot.sockets
        return {s.inode: s for s in reading.value if s.inode} if isinstance(reading, Ok) else {}

    @cached_property
    def _tcp_by_address(self) -> dict[tuple[int | None, str, str], Socket]:
        return {
            (s.net_namespace, s.local, s.remote): s for s in self.sockets.values() if s.family == "tcp" and s.state != "LISTEN"
        }

    @cached_property
    def children(self) -> dict[int, tuple[Process, ...]]:
        found: dict[int, list[Process]] = defaultdict(list)
        for process in self.snapshot.processes:
            found[process.ppid].append(process)
        return {pid: tuple(kids) for pid, kids in found.items()}

    def alive(self, pid: int) -> bool:
        process = self.by_pid.get(pid)
        return process is not None and process.state not in GONE

    def stopped(self, pid: int) -> bool:
        process = self.by_pid.get(pid)
        return process is not None and process.state in STOPPED

    def thread(self, pid: int, tid: int) -> Thread | None:
        process = self.by_pid.get(pid)
        return next((t for t in process.threads if t.tid == tid), None) if process else None

    def fd(self, pid: int, number: int) -> FileDescriptor | None:
        process = self.by_pid.get(pid)
        if process is None or not isinstance(process.fds, Ok):
            return None
        return next((f for f in process.fds.value if f.fd == number), None)

    def syscall(self, pid: int, tid: int) -> Syscall | None:
        """The call a thread sleeps in; None if it runs, or if calls could not be read."""
        process = self.by_pid.get(pid)
        if process is None or not isinstance(process.syscalls, Ok):
            return None
        return process.syscalls.value.get(tid)

    def peer_socket(self, socket: Socket) -> Socket | None:
        """The socket at the other end, if it is on this host and was recorded."""
        if socket.family == "unix":
            return self.sockets.get(socket.peer_inode) if socket.peer_inode else None
        return self._tcp_by_address.get((socket.net_namespace, socket.remote, socket.local))

    def owner(self, pid: int) -> Node:
        """The node that owes what a process owes: its main thread, or the process itself where no thread can run."""
        process = self.by_pid.get(pid)
        if process is None or process.state in GONE or process.state in STOPPED or process.main_thread is None:
            return node.process(pid)
        return node.thread(pid, pid)


def is_loopback(address: str) -> bool:
    return address.startswith(LOOPBACK)
