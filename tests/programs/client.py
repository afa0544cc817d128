"""Ask the server on the given port for one answer after another, as long as it gives any."""

from __future__ import annotations

import socket
import sys


def main(port: str) -> None:
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.sendall(b"a question\n")
        while connection.recv(4096):
            connection.sendall(b"another question\n")


main(sys.argv[1])
