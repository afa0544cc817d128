"""Sockets from /proc/PID/net: for net namespaces and kernels in which netlink is refused.

No peers of Unix sockets, no ages and no byte counts there.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from gpudiag.collect import procfs
from gpudiag.collect.addresses import TCP_STATES, endpoint
from gpudiag.model.network import Socket

_LIMIT = 1 << 25
_UNIX_LISTENS = 0x10000
"""__SO_ACCEPTCON in the Flags column of /proc/net/unix (include/linux/net.h)."""
_SS_CONNECTED = 3
"""enum socket_state, include/uapi/linux/net.h."""


def tcp_sockets(pid: int | str) -> Iterator[Socket]:
    """The TCP sockets of the net namespace of `pid`. Raises OSError."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            raw = procfs.read_all(f"/proc/{pid}/net/{name}", _LIMIT)
        except FileNotFoundError:
            # A kernel without IPv6 has no tcp6; a process that is gone fails for tcp too.
            if family == socket.AF_INET6:
                continue
            raise
        for line in raw.splitlines()[1:]:
            fields = line.split()
            if len(fields) >= 10:
                yield _tcp(family, fields)


def unix_sockets(pid: int | str) -> Iterator[Socket]:
    """The Unix sockets of the net namespace of `pid`. Raises OSError."""
    for line in procfs.read_all(f"/proc/{pid}/net/unix", _LIMIT).splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) < 7:
            continue
        connected = int(fields[5], 16) == _SS_CONNECTED
        listens = bool(int(fields[3], 16) & _UNIX_LISTENS)
        yield Socket(
            inode=int(fields[6]),
            family="unix",
            state="LISTEN" if listens else "CONNECTED" if connected else "UNCONNECTED",
            local=procfs.text(fields[7]) if len(fields) > 7 else "",
            remote="",
        )


def _tcp(family: int, fields: list[bytes]) -> Socket:
    send, _, receive = fields[4].partition(b":")
    state = int(fields[3], 16)
    listening = TCP_STATES.get(state) == "LISTEN"
    return Socket(
        inode=int(fields[9]),
        family="tcp",
        state=TCP_STATES.get(state, str(state)),
        local=_endpoint(family, fields[1]),
        remote=_endpoint(family, fields[2]),
        receive_queue_bytes=0 if listening else int(receive, 16),
        send_queue_bytes=0 if listening else int(send, 16),
        pending_connections=int(receive, 16) if listening else None,
    )


def _endpoint(family: int, field: bytes) -> str:
    """Addresses are printed as 32-bit words in the byte order of the machine (net/ipv4/tcp_ipv4.c), ports as numbers."""
    address, _, port = field.partition(b":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    return endpoint(family, struct.pack(f"={len(words)}I", *words), int(port, 16))
