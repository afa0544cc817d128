"""A thread of the victim sleeps in C without letting go of the interpreter lock; every other thread waits for that.

thread=helper | main: who holds it
"""

from __future__ import annotations

import ctypes
import threading

from tests.programs.common import Seat, idle_company, run_program

SECONDS = 100_000


def hold_interpreter() -> None:
    ctypes.PyDLL(None).sleep(SECONDS)


def victim(seat: Seat) -> None:
    idle_company()
    if seat.options.get("thread", "helper") == "main":
        seat.arrive()
        hold_interpreter()
    started = threading.Event()
    holder = threading.Thread(target=_arrive_and_hold, args=(seat, started), name="driver", daemon=True)
    holder.start()
    started.set()
    count_tokens(-1)


def count_tokens(limit: int) -> int:
    count = 0
    while count != limit:
        count += 1
    return count


def _arrive_and_hold(seat: Seat, started: threading.Event) -> None:
    started.wait()
    seat.arrive(tid=threading.get_native_id())
    hold_interpreter()


run_program(victim)
