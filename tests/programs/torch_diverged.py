"""The victim took another branch: it waits in the barrier of a checkpoint, the others in the all-reduce of a step."""

from __future__ import annotations

import torch.distributed as dist

from tests.programs.common import Seat, idle_company, run_program
from tests.programs.torch_group import join_group, sum_gradients


def save_checkpoint() -> None:
    dist.barrier()


def train_step() -> float:
    return sum_gradients()


def victim(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    save_checkpoint()


def other(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    train_step()


run_program(victim, other=other, ring=False)
