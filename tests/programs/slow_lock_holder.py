"""Not a hang: the victim's main thread waits for a lock whose holder works through a long list."""

from __future__ import annotations

import threading

from tests.programs.common import Seat, idle_company, run_program


class Table:
    """Rows behind one lock."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.inside = threading.Event()
        self.rows = 0
        self.checksum = 0

    def rebuild(self, rows: int) -> None:
        with self.guard:
            self.inside.set()
            for number in range(rows):
                self.rows = number
                self.add_row(number)

    def add_row(self, number: int) -> None:
        total = 0
        for column in range(2000):
            total += number * column
        self.checksum ^= total

    def look_up(self) -> int:
        with self.guard:
            return self.rows


def victim(seat: Seat) -> None:
    idle_company()
    table = Table()
    rebuilder = threading.Thread(target=table.rebuild, args=(10**9,), name="rebuilder", daemon=True)
    rebuilder.start()
    table.inside.wait()
    # The main thread sleeps on the lock but takes turns at the interpreter with the holder until then.
    seat.arrive(owner_tid=rebuilder.native_id)
    table.look_up()


run_program(victim)
