"""The victim broadcasts while the others reduce: the same step of the same group, two operations."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.programs.common import Seat, idle_company, run_program
from tests.programs.torch_group import join_group, sum_gradients


def train_step(seat: Seat) -> None:
    if seat.is_victim:
        dist.broadcast(torch.ones(1024), src=(seat.victim + 1) % seat.ranks)
    else:
        sum_gradients()


def everyone(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    train_step(seat)


run_program(everyone, other=everyone, ring=False)
