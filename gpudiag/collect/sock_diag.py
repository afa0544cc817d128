"""Sockets through netlink NETLINK_SOCK_DIAG: what ss(8) uses, with ages and byte counts of TCP and peers of Unix sockets.

Layouts from include/uapi/linux/{netlink,sock_diag,inet_diag,unix_diag,tcp}.h, Linux 6.12; they only ever grow at the end.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from gpudiag.collect.addresses import TCP_STATES, UNIX_STATES, endpoint, unix_name
from gpudiag.model.network import Socket

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NLM_F_REQUEST_DUMP = 0x301
_RECEIVE_BYTES = 1 << 18
_MOST_SOCKETS = 200_000

_NLMSGHDR = struct.Struct("=IHHII")
_NLMSGERR = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")
_INET_REQUEST = struct.Struct("=BBBBI48x")
_INET_MESSAGE = struct.Struct("=BBBB2s2s16s16s4x8xIIIII")
_UNIX_REQUEST = struct.Struct("=BBHIIIII")
_UNIX_MESSAGE = struct.Struct("=BBBBI8x")

_INET_DIAG_INFO = 2
_UNIX_NAME, _UNIX_PEER, _UNIX_PENDING, _UNIX_QUEUES = 0, 2, 3, 4
_UNIX_SHOW = 0x01 | 0x04 | 0x08 | 0x10
"""UDIAG_SHOW_NAME, _PEER, _ICONS (connections not yet accepted) and _RQLEN."""
_ALL_STATES = 0xFFFFFFFF
_ALL_BUT_TIME_WAIT = _ALL_STATES & ~(1 << 6)
_CLOSE, _LISTEN = 7, 10

_LAST_DATA_SENT, _LAST_DATA_RECEIVED = 44, 52
"""Offsets in struct tcp_info, u32 in milliseconds."""
_BYTES_ACKED, _BYTES_RECEIVED = 120, 128
"""Offsets in struct tcp_info, u64, since Linux 4.1."""


def tcp_sockets() -> Iterator[Socket]:
    """Every TCP socket of this network namespace. Raises OSError where netlink or the family is refused."""
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _INET_REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, _ALL_BUT_TIME_WAIT)
        for body in _dump(request):
            yield _tcp(family, body)


def unix_sockets() -> list[Socket]:
    """Every Unix socket of this network namespace, with the inode of the socket at the other end.

    A client whose connection has not been accepted yet has the listening socket at its other end. Raises OSError.
    """
    request = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _UNIX_SHOW, 0xFFFFFFFF, 0xFFFFFFFF)
    found = [_unix_attributes(body) for body in _dump(request)]
    names = {inode: unix_name(attributes.get(_UNIX_NAME, b"")) for inode, _, attributes in found}
    waiting = ((inode, _numbers(attributes.get(_UNIX_PENDING, b""))) for inode, _, attributes in found)
    pending = {client: inode for inode, clients in waiting for client in clients if client}
    return [_unix(inode, state, attributes, names, pending) for inode, state, attributes in found]


def _dump(request: bytes) -> Iterator[bytes]:
    """The bodies of the messages that answer a dump request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(2.0)
        header = _NLMSGHDR.pack(_NLMSGHDR.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
        netlink.sendto(header + request, (0, 0))
        for _ in range(_MOST_SOCKETS):
            data = netlink.recv(_RECEIVE_BYTES)
            offset = 0
            while offset + _NLMSGHDR.size <= len(data):
                length, kind, _flags, _sequence, _port = _NLMSGHDR.unpack_from(data, offset)
                body = data[offset + _NLMSGHDR.size : offset + length]
                if kind == _NLMSG_DONE or length < _NLMSGHDR.size:
                    return
                if kind == _NLMSG_ERROR:
                    code = -_NLMSGERR.unpack_from(body)[0]
                    raise OSError(code, os.strerror(code))
                yield body
                offset += (length + 3) & ~3


def _tcp(family: int, body: bytes) -> Socket:
    _, state, _, _, sport, dport, source, destination, _, receive, send, _, inode = _INET_MESSAGE.unpack_from(body)
    info = _attributes(body[_INET_MESSAGE.size :]).get(_INET_DIAG_INFO, b"")
    # A socket that listens or was never used has no ages: the kernel then reports the time since boot.
    aged = state not in (_CLOSE, _LISTEN)
    listening = state == _LISTEN
    return Socket(
        inode=inode,
        family="tcp",
        state=TCP_STATES.get(state, str(state)),
        local=endpoint(family, source, int.from_bytes(sport, "big")),
        remote=endpoint(family, destination, int.from_bytes(dport, "big")),
        receive_queue_bytes=0 if listening else receive,
        send_queue_bytes=0 if listening else send,
        pending_connections=receive if listening else None,
        last_received_ms=_number(info, _LAST_DATA_RECEIVED, 4) if aged else None,
        last_sent_ms=_number(info, _LAST_DATA_SENT, 4) if aged else None,
        bytes_received=_number(info, _BYTES_RECEIVED, 8) if aged else None,
        bytes_sent=_number(info, _BYTES_ACKED, 8) if aged else None,
    )


def _unix_attributes(body: bytes) -> tuple[int, int, dict[int, bytes]]:
    _, _, state, _, inode = _UNIX_MESSAGE.unpack_from(body)
    return inode, state, _attributes(body[_UNIX_MESSAGE.size :])


def _unix(inode: int, state: int, attributes: dict[int, bytes], names: dict[int, str], pending: dict[int, int]) -> Socket:
    queues = attributes.get(_UNIX_QUEUES, b"")
    listening = state == _LISTEN
    peer = _number(attributes.get(_UNIX_PEER, b""), 0, 4) or pending.get(inode)
    return Socket(
        inode=inode,
        family="unix",
        state=UNIX_STATES.get(state, str(state)),
        local=names[inode],
        remote=names.get(peer, "") if peer else "",
        peer_inode=peer,
        receive_queue_bytes=0 if listening else _number(queues, 0, 4) or 0,
        send_queue_bytes=0 if listening else _number(queues, 4, 4) or 0,
        pending_connections=_number(queues, 0, 4) if listening else None,
    )


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def _number(data: bytes, offset: int, size: int) -> int | None:
    field = data[offset : offset + size]
    return int.from_bytes(field, "little" if struct.pack("=H", 1)[0] else "big") if len(field) == size else None


def _numbers(data: bytes) -> list[int]:
    return [n for offset in range(0, len(data), 4) if (n := _number(data, offset, 4)) is not None]
