"""A gloo group of torch.distributed for the programs that need torch."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

LIMIT = timedelta(hours=6)
WARM_UP_ROUNDS = 3


def join_group() -> None:
    """Join the group that the environment describes, and take part in a few sums."""
    dist.init_process_group("gloo", timeout=LIMIT)
    for _ in range(WARM_UP_ROUNDS):
        sum_gradients()


def sum_gradients() -> float:
    gradients = torch.ones(1024)
    dist.all_reduce(gradients)
    return float(gradients[0])
