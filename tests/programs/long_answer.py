"""Nothing is wrong: the ranks generate an answer that takes long and is not streamed, and /metrics counts its tokens."""

from __future__ import annotations

import itertools
import socket
import threading
import time

from gpudiag.demo.scripts.collective import put_message, take_message
from tests.programs.common import Seat, idle_company, run_program

TOKENS_PER_S = 50
PAUSE_S = 0.002


def generate(seat: Seat) -> None:
    idle_company()
    seat.arrive("any")
    for step in itertools.count():
        seat.all_reduce()
        time.sleep(PAUSE_S * (1 + step % 2))


def front(seat: Seat) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    seat.arrive(port=listener.getsockname()[1])
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(seat, connection), daemon=True).start()


def _answer(seat: Seat, connection: socket.socket) -> None:
    assert seat.mailbox is not None
    with connection:
        request = connection.recv(4096)
        if request.startswith(b"GET /metrics "):
            body = b'vllm:generation_tokens_total{engine="0"} %d\n' % (time.monotonic() * TOKENS_PER_S)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        put_message(seat.mailbox, request)
        connection.sendall(take_message(seat.mailbox))


run_program(generate, other=generate, root=front)
