"""The victim sleeps in a function of its own while the others wait for it in an all-reduce of gloo."""

from __future__ import annotations

import time

from tests.programs.common import HOURS_S, Seat, idle_company, run_program
from tests.programs.torch_group import join_group, sum_gradients


def cool_down(seconds: float) -> None:
    time.sleep(seconds)


def victim(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    cool_down(HOURS_S)


def other(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    sum_gradients()


run_program(victim, other=other, ring=False)
