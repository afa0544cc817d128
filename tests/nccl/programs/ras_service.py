"""Answers like NCCL's service with the file it is given, on a port of its own, which it says; also in a new net namespace.

ras_service.py FILE COUNT: every question is counted in the file COUNT with one byte.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def bring_loopback_up() -> None:
    """The loopback device of a new net namespace is down."""
    with socket.socket() as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        _, flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))
        if not flags & IFF_UP:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def main() -> None:
    bring_loopback_up()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as heard:
                for answer in (b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"):
                    heard.readline()
                    connection.sendall(answer)
                heard.readline()
                with open(sys.argv[2], "ab") as count:
                    count.write(b".")
                with open(sys.argv[1], "rb") as body:
                    connection.sendall(body.read())


main()
