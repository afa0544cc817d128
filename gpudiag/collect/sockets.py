"""The sockets of the recorded processes and those at their other ends, from whichever source answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from gpudiag.collect import proc_net, sock_diag
from gpudiag.model.network import Socket
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Gap


class Table(NamedTuple):
    """All sockets of one net namespace, and what the source could not say about them."""

    sockets: tuple[Socket, ...]
    gaps: tuple[Gap, ...]


def socket_inodes(processes: Iterable[Process]) -> frozenset[int]:
    """The inodes of the sockets that `processes` have open."""
    return frozenset(
        fd.inode
        for process in processes
        if isinstance(process.fds, Ok)
        for fd in process.fds.value
        if fd.kind == "socket" and fd.inode is not None
    )


def own_table(pid: int | str, net_namespace: int | None) -> Table:
    """The sockets of the net namespace that this thread is in; `pid` names a process in it for the fallback.

    Raises OSError only if /proc/PID/net cannot be read either.
    """
    gaps: list[Gap] = []
    try:
        tcp = list(sock_diag.tcp_sockets())
    except OSError as error:
        tcp = list(proc_net.tcp_sockets(pid))
        gaps.append(_refused("tcp-info", error, "sudo modprobe tcp_diag"))
    try:
        unix = sock_diag.unix_sockets()
    except OSError as error:
        unix = list(proc_net.unix_sockets(pid))
        gaps.append(_refused("unix-peers", error, "sudo modprobe unix_diag"))
    return Table(_in_namespace([*tcp, *unix], net_namespace), tuple(gaps))


def _refused(source: str, error: OSError, help_: str) -> Gap:
    return Gap(source=source, reason=f"netlink sock_diag refused: {error.strerror}", help=help_)


def foreign_table(pid: int, net_namespace: int | None) -> Table:
    """The sockets of another net namespace as /proc shows them through a process in it. Raises OSError."""
    sockets = [*proc_net.tcp_sockets(pid), *proc_net.unix_sockets(pid)]
    enter = f"nsenter -t {pid} -n gpudiag attach {pid}"
    gaps = tuple(
        Gap(source=source, reason=f"process {pid} is in another net namespace, which may not be entered", help=enter)
        for source in ("tcp-info", "unix-peers")
    )
    return Table(_in_namespace(sockets, net_namespace), gaps)


def _in_namespace(sockets: Sequence[Socket], net_namespace: int | None) -> tuple[Socket, ...]:
    return tuple(msgspec.structs.replace(s, net_namespace=net_namespace) for s in sockets)


def with_peers(sockets: Sequence[Socket], inodes: AbstractSet[int]) -> tuple[Socket, ...]:
    """The sockets in `inodes` and those at their other ends."""
    own = [s for s in sockets if s.inode in inodes]
    peer_inodes = {s.peer_inode for s in own if s.peer_inode}
    ends = {(s.net_namespace, s.remote, s.local) for s in own if s.family == "tcp" and s.state != "LISTEN"}
    return tuple(
        s
        for s in sockets
        if s.inode in inodes
        or (s.family == "unix" and s.inode in peer_inodes)
        or (s.family == "tcp" and (s.net_namespace, s.local, s.remote) in ends)
    )
