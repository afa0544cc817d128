"""Somebody who asks one question and waits for the answer, however long it takes."""

from __future__ import annotations

import socket

from .settings import load_settings


def ask_server(port: int, prompt: bytes) -> bytes:
    """Send one request to the server on `port` and return everything it says."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /generate HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(prompt), prompt))
        answer = bytearray()
        while part := connection.recv(4096):
            answer += part
        return bytes(answer)


def ask_once(directory: str, port: str) -> None:
    load_settings(directory)
    ask_server(int(port), b"tell me a story")
