"""Clients: one waits for its answer, however long it takes; one has its answer and keeps the connection for later."""

from __future__ import annotations

import os
import select
import socket


def ask_server(port: int, prompt: bytes) -> bytes:
    """Send one request to the server on `port` and return everything it says."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /generate HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(prompt), prompt))
        answer = bytearray()
        while part := connection.recv(4096):
            answer += part
        return bytes(answer)


def keep_connection(_directory: str, port: str, answered_fd: str) -> None:
    """Ask, take the answer, say so, and hold on to the connection as clients with a pool of them do."""
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.sendall(b"POST /generate HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello")
        with connection.makefile("rb") as lines:
            length = 0
            for header in iter(lines.readline, b"\r\n"):
                name, _, value = header.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            lines.read(length)
        os.write(int(answered_fd), b".")
        os.close(int(answered_fd))
        select.select([connection], [], [])


def ask_once(_directory: str, port: str) -> None:
    ask_server(int(port), b"tell me a story")
