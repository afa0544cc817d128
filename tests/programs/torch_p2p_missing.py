"""The rank after the victim waits to receive what the victim, asleep in a function of its own, never sends.

The ranks after that wait for the one before them, as in a pipeline.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tests.programs.common import HOURS_S, Seat, idle_company, run_program
from tests.programs.torch_group import join_group


def prepare_microbatch(seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    return torch.ones(1024)


def forward_stage(seat: Seat) -> None:
    """One stage of a pipeline that starts at the victim."""
    place = (seat.number - seat.victim) % seat.ranks
    if place == 0:
        activations = prepare_microbatch(HOURS_S)
    else:
        activations = torch.empty(1024)
        dist.recv(activations, src=(seat.number - 1) % seat.ranks)
    if place + 1 < seat.ranks:
        dist.send(activations, dst=(seat.number + 1) % seat.ranks)


def everyone(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    forward_stage(seat)


run_program(everyone, other=everyone, ring=False)
