"""The victim computes for ever in pure Python while the others wait for it in an all-reduce."""

from __future__ import annotations

from tests.programs.common import Seat, idle_company, run_program


def search_grammar(limit: int) -> int:
    state = 1
    steps = 0
    while state != limit:
        state = state * 6364136223846793005 % 2**61 | 1
        steps += 1
    return steps


def victim(seat: Seat) -> None:
    idle_company()
    seat.arrive("run")
    search_grammar(-1)


run_program(victim)
