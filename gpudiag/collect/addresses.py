"""How socket addresses and states read."""

from __future__ import annotations

import socket

from gpudiag.collect.procfs import text

TCP_STATES = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
    12: "NEW_SYN_RECV",
}
"""include/net/tcp_states.h"""

_MAPPED = bytes(10) + b"\xff\xff"

UNIX_STATES = {1: "CONNECTED", 7: "UNCONNECTED", 10: "LISTEN"}
"""Unix sockets use three of the TCP states (net/unix/af_unix.c)."""


def endpoint(family: int, address: bytes, port: int) -> str:
    """'1.2.3.4:80' or '[::1]:80'. An IPv4 address inside IPv6 reads as IPv4, so that both ends of a connection match."""
    if family == socket.AF_INET:
        return f"{socket.inet_ntop(socket.AF_INET, address[:4])}:{port}"
    if address.startswith(_MAPPED):
        return f"{socket.inet_ntop(socket.AF_INET, address[12:16])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address[:16])}]:{port}"


def unix_name(raw: bytes) -> str:
    """The path of a Unix socket, or '@name' for one in the abstract namespace."""
    if raw.startswith(b"\0"):
        return "@" + text(raw[1:].rstrip(b"\0"))
    return text(raw.rstrip(b"\0"))
