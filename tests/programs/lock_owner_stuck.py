"""The victim's main thread waits for a lock that another of its threads holds and will not give back.

lock=lock | rlock; owner=sleep | socket: what the owner is busy with (socket: a datagram that nobody sends)
"""

from __future__ import annotations

import socket
import threading
import time

from tests.programs.common import HOURS_S, Seat, idle_company, run_program


class Table:
    """Rows behind one lock, and a thread that brings them up to date."""

    def __init__(self, reentrant: bool) -> None:
        self.guard = threading.RLock() if reentrant else threading.Lock()
        self.rows = 0
        self.inside = threading.Event()

    def refresh(self, owner: str) -> None:
        with self.guard:
            self.inside.set()
            self.fetch_rows(owner)
            self.rows += 1

    def fetch_rows(self, owner: str) -> None:
        if owner == "socket":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
                source.bind(("127.0.0.1", 0))
                source.recv(4096)
        else:
            time.sleep(HOURS_S)

    def look_up(self) -> int:
        with self.guard:
            return self.rows


def victim(seat: Seat) -> None:
    idle_company()
    table = Table(seat.options.get("lock") == "rlock")
    refresher = threading.Thread(target=table.refresh, args=(seat.options.get("owner", "sleep"),), name="refresher", daemon=True)
    refresher.start()
    table.inside.wait()
    seat.arrive(owner_tid=refresher.native_id)
    table.look_up()


run_program(victim)
