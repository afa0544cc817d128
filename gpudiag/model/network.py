"""Sockets as the kernel's socket tables show them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Socket(Struct, frozen=True, kw_only=True):
    """One socket. `inode` joins it to file descriptors, `peer_inode` (Unix only) to the socket at the other end.

    `local` and `remote` are 'address:port' for TCP and a path (or '@name') for Unix. Queues are in bytes. The
    `last_*_ms` ages and byte counts come from TCP_INFO and are None where the kernel gives none.
    """

    inode: int
    family: Literal["tcp", "unix"]
    state: str
    """TCP state name (ESTABLISHED, LISTEN, CLOSE_WAIT ...); for Unix CONNECTED, LISTEN or UNCONNECTED."""
    local: str
    remote: str
    net_namespace: int | None = None
    peer_inode: int | None = None
    receive_queue_bytes: int = 0
    send_queue_bytes: int = 0
    last_received_ms: int | None = None
    last_sent_ms: int | None = None
    bytes_received: int | None = None
    bytes_sent: int | None = None
    pending_connections: int | None = None
    """For a listening socket: connections that nobody has accepted yet."""
