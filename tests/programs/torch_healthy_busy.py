"""Nothing is wrong: all ranks reduce over gloo as fast as they can."""

from __future__ import annotations

from tests.programs.common import Seat, idle_company, run_program
from tests.programs.torch_group import join_group, sum_gradients


def train(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive("any")
    while True:
        sum_gradients()


run_program(train, other=train, ring=False)
