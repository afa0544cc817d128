"""Pipes and sockets: a thread in a read waits for whoever can write, a thread in a write for whoever should read.

Where several processes hold the other end (descriptors are inherited), a process that holds both ends is a bystander as
long as another holds only the far one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudiag.engines.roles import BYSTANDERS
from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.network import Socket
from gpudiag.model.node import Node
from gpudiag.model.process import FileDescriptor
from gpudiag.model.reading import Ok
from gpudiag.model.wait import WaitKind
from gpudiag.waits.context import Context, Edge, Mode
from gpudiag.waits.index import is_loopback
from gpudiag.waits.motion import Motion

READS = frozenset({"read", "readv", "pread64", "recvfrom", "recvmsg", "recvmmsg"})
WRITES = frozenset({"write", "writev", "sendto", "sendmsg", "sendmmsg"})
POLLS = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"})


def edges(context: Context) -> Iterator[Edge]:
    for _, process, thread in context.threads():
        known = context.known(process.pid, thread.tid)
        if known is not None and (known.kind in ("collective", "p2p", "store") or known.need == "work"):
            continue
        blocked = _blocked_on(context, process.pid, thread.tid)
        if blocked is None:
            continue
        mode, fd = blocked
        if not _one_wait(context, process.pid, thread.tid, fd):
            continue
        for holder, kind, evidence in _far_end(context, process.pid, fd, mode):
            yield context.edge((process.pid, thread.tid), holder, kind, mode, evidence)


def _blocked_on(context: Context, pid: int, tid: int) -> tuple[Mode, FileDescriptor] | None:
    """The one pipe or socket a thread waits for, and whether to read or to write."""
    call = context.index.syscall(pid, tid)
    if call is None or not call.args:
        return None
    if call.name in READS or call.name in WRITES:
        fd = context.index.fd(pid, call.args[0])
        mode: Mode = "read" if call.name in READS else "write"
        return (mode, fd) if fd is not None and fd.kind in ("pipe", "socket") else None
    if call.name not in POLLS:
        return None
    process = context.index.by_pid[pid]
    numbers = process.polls.value.get(tid, ()) if isinstance(process.polls, Ok) else ()
    streams = [f for n in numbers if (f := context.index.fd(pid, n)) is not None and f.kind in ("pipe", "socket")]
    streams = [f for f in streams if not _listens(context, f)]
    if len(streams) != 1 or len(streams) != len(numbers):
        return None
    return ("read", streams[0])


def _listens(context: Context, fd: FileDescriptor) -> bool:
    socket = context.index.sockets.get(fd.inode or 0)
    return socket is not None and socket.state == "LISTEN"


def _one_wait(context: Context, pid: int, tid: int, fd: FileDescriptor) -> bool:
    """Whether this is one wait through all looks: it never woke up, or nothing arrived on the connection in between."""
    motion = context.motion(pid, tid)
    if motion in (Motion.FROZEN, Motion.UNKNOWN):
        return True
    if motion is not Motion.POLLING or fd.inode is None:
        return False
    then, now = context.before.sockets.get(fd.inode), context.index.sockets.get(fd.inode)
    if then is None or now is None or now.bytes_received is None or then.bytes_received is None:
        return False
    return (then.bytes_received, then.bytes_sent) == (now.bytes_received, now.bytes_sent)


def _far_end(context: Context, pid: int, fd: FileDescriptor, mode: Mode) -> Iterator[tuple[Node, WaitKind, Evidence]]:
    if fd.kind == "pipe":
        yield from _pipe(context, pid, fd, mode)
        return
    socket = context.index.sockets.get(fd.inode or 0)
    if socket is None or socket.state == "LISTEN":
        return
    yield from _socket(context, pid, socket, mode)


def _pipe(context: Context, pid: int, fd: FileDescriptor, mode: Mode) -> Iterator[tuple[Node, WaitKind, Evidence]]:
    held = context.index.holders.get(fd.inode or 0, ())
    far = {p for p, f in held if (f.writable if mode == "read" else f.readable)}
    near = {p for p, f in held if (f.readable if mode == "read" else f.writable)}
    candidates = _answerers(context, pid, far, near)
    verb, end = ("read", "write") if mode == "read" else ("write", "read")
    excerpt = f"{fd.target}: {end} end open in {_pids(far)}"
    if len(candidates) == 1:
        other = candidates[0]
        evidence = Evidence(
            source="pipe-ends",
            claim=f"pid {pid} waits to {verb} on a pipe whose other end is pid {other}",
            excerpt=excerpt,
            at=context.at,
        )
        child = context.index.by_pid[other].ppid == pid
        yield context.index.owner(other), "child" if child and pid not in far else "ipc", evidence
        return
    claim = (
        f"pid {pid} waits to {verb} on a pipe that no other process has open at the {end} end"
        if not (far - {pid})
        else f"pid {pid} waits to {verb} on a pipe; which of {_pids(far - {pid})} should {end} is not visible"
    )
    yield node.file(fd.target), "ipc", Evidence(source="pipe-ends", claim=claim, excerpt=excerpt, at=context.at)


def _answerers(context: Context, pid: int, far: set[int], near: set[int]) -> list[int]:
    """Who may be meant to use the far end of a pipe.

    A process that has both ends, or a pool worker where the waiter itself has both, got its copy by inheritance (fork,
    multiprocessing.Queue): it is left out as long as that leaves somebody, and also where it leaves nobody.
    """
    others = sorted(p for p in far if p != pid)
    if pid in far:
        others = [p for p in others if _role(context, p) not in BYSTANDERS]
    if len(others) > 1:
        others = [p for p in others if p not in near] or others
    if len(others) > 1:
        ranked = [p for p in others if _ranked(context, p)]
        others = ranked if len(ranked) == 1 else others
    if len(others) > 1:
        # A tool that starts tools shares its output with them: the one that the waiter started answers for all.
        own = [p for p in others if context.index.by_pid[p].ppid == pid]
        others = own if len(own) == 1 and all(_below(context, p, own[0]) for p in others) else others
    return others


def _below(context: Context, pid: int, ancestor: int) -> bool:
    seen: set[int] = set()
    while pid != ancestor:
        process = context.index.by_pid.get(pid)
        if process is None or pid in seen:
            return False
        seen.add(pid)
        pid = process.ppid
    return True


def _socket(context: Context, pid: int, socket: Socket, mode: Mode) -> Iterator[tuple[Node, WaitKind, Evidence]]:
    peer = context.index.peer_socket(socket)
    name = f"{socket.family} {socket.local or '(unnamed)'} -> {socket.remote or '(unnamed)'} inode {socket.inode}"
    if peer is None:
        if socket.family == "tcp" and not is_loopback(socket.remote):
            claim = f"pid {pid} waits for a host outside this machine: {socket.remote}"
            yield node.remote(socket.remote), "socket", Evidence(source="socket-table", claim=claim, excerpt=name, at=context.at)
        return
    far = {p for p, _ in context.index.holders.get(peer.inode, ())}
    near = {p for p, _ in context.index.holders.get(socket.inode, ())}
    candidates = _peers(context, pid, far, near)
    dead = context.lost
    if dead and _ranked(context, pid) and not any(_ranked(context, p) for p in candidates):
        # A rank talks to ranks: what is left of the connection of a dead one is a copy in some process that outlived it.
        claim = f"pid {pid} waits on a connection that no living rank has the other end of (open in {_pids(far) or 'no process'})"
        yield dead[0].node, "socket", Evidence(source="socket-table", claim=claim, excerpt=name, at=context.at)
        return
    if len(candidates) == 1:
        other = candidates[0]
        verb = "hear from" if mode == "read" else "be read by"
        claim = f"pid {pid} waits to {verb} pid {other}, which has the other end of the connection"
        yield context.index.owner(other), "socket", Evidence(source="socket-table", claim=claim, excerpt=name, at=context.at)
    elif candidates or not far - {pid}:
        who = _pids(far - {pid})
        claim = f"pid {pid} waits on a connection whose other end is open in {who or 'no other process'}"
        target = node.file(f"socket:[{peer.inode}]")
        yield target, "socket", Evidence(source="socket-table", claim=claim, excerpt=name, at=context.at)


def _peers(context: Context, pid: int, far: set[int], near: set[int]) -> list[int]:
    others = sorted(p for p in far if p != pid)
    if len(others) > 1:
        others = [p for p in others if p not in near] or others
    if len(others) > 1:
        others = [p for p in others if _role(context, p) not in BYSTANDERS] or others
    if len(others) > 1:
        others = [p for p in others if _ranked(context, p)] or others
    return others


def _role(context: Context, pid: int) -> str:
    member = context.server.member(pid)
    return member.role if member else "outside"


def _ranked(context: Context, pid: int) -> bool:
    member = context.server.member(pid)
    return member is not None and member.ranked


def _pids(pids: Sequence[int] | set[int]) -> str:
    return ", ".join(f"pid {p}" for p in sorted(pids))
