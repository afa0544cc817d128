"""Nothing is wrong: all ranks reduce as fast as they can and the client gets one answer after another."""

from __future__ import annotations

from tests.programs.common import Seat, idle_company, run_program

STEPS = 40


def compute(seat: Seat) -> None:
    idle_company()
    arrived = False
    while True:
        for _ in range(STEPS):
            seat.all_reduce()
        if not arrived:
            seat.arrive("any")
            arrived = True
        if seat.style == "title":
            seat.answer_request(b"an answer\n")
            seat.next_request()


run_program(compute, other=compute)
