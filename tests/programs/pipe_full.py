"""The victim writes to a full pipe whose reader lives but does not read.

via=pipe | connection; reader=sleep | event: what the reader is stuck in
"""

from __future__ import annotations

import os
import threading
import time
from multiprocessing.connection import Connection

from tests.programs.common import HOURS_S, Seat, idle_company, run_program


def victim(seat: Seat) -> None:
    idle_company()
    reader_end, writer_end = os.pipe()
    seat.launch("reader", str(reader_end), title="demo::logger" if seat.style == "title" else None, fds=(reader_end,))
    os.close(reader_end)
    seat.arrive(awaits=("reader",))
    if seat.options.get("via", "pipe") == "connection":
        sink = Connection(writer_end, readable=False)
        while True:
            sink.send(bytes(4096))
    while True:
        os.write(writer_end, bytes(4096))


def reader(seat: Seat) -> None:
    source = int(seat.extra[0])
    os.read(source, 4096)
    seat.arrive()
    if seat.options.get("reader", "sleep") == "event":
        threading.Event().wait()
    time.sleep(HOURS_S)


run_program(victim, reader=reader)
