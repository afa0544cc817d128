"""Sockets of another net namespace. Runs in the guarded child, which may move between namespaces without harm to gpudiag."""

from __future__ import annotations

from gpudiag.collect.attempt import reading
from gpudiag.collect.guard_protocol import SocketsReply, SocketsRequest
from gpudiag.collect.net_namespace import inside
from gpudiag.collect.sockets import Table, foreign_table, own_table, with_peers
from gpudiag.model.reading import Ok, Unavailable


def read_sockets(request: SocketsRequest) -> SocketsReply:
    """Through netlink from inside the namespace if this process may enter it, else as /proc/PID/net shows them."""
    read = reading(request.pid, lambda: _table(request))
    if isinstance(read, Ok):
        table = read.value
        return SocketsReply(
            sockets=Ok(value=with_peers(table.sockets, request.inodes), at=read.at, took_s=read.took_s), gaps=table.gaps
        )
    if isinstance(read, Unavailable):
        return SocketsReply(
            sockets=Unavailable(reason=read.reason, help=f"nsenter -t {request.pid} -n gpudiag attach {request.pid}")
        )
    return SocketsReply(sockets=read)


def _table(request: SocketsRequest) -> Table:
    try:
        with inside(request.pid):
            return own_table("thread-self", request.net_namespace)
    except PermissionError:
        return foreign_table(request.pid, request.net_namespace)
