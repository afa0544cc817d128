"""The root is an asyncio server whose handler blocks the event loop; the ranks wait for work.

block=sleep | recv: what the handler is stuck in
"""

from __future__ import annotations

import asyncio
import socket
import time

from tests.programs.common import HOURS_S, Seat, idle_company, run_program


def root(seat: Seat) -> None:
    idle_company()
    asyncio.run(accept_requests(seat))


async def accept_requests(seat: Seat) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        seat.arrive()
        look_up_user(seat.options.get("block", "sleep"))
        writer.write(b"an answer\n")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    seat.arrive("any", port=server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def look_up_user(block: str) -> None:
    """What should have been awaited."""
    if block == "recv":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
            source.bind(("127.0.0.1", 0))
            source.recv(4096)
    time.sleep(HOURS_S)


def wait_for_work(seat: Seat) -> None:
    seat.arrive()
    seat.next_request()


run_program(wait_for_work, other=wait_for_work, root=root, asked=False)
