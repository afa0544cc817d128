"""Attention to the last few entries, query by query, beside the replay's: prints the largest difference.

usage: windowed.py PLACE_OF_TORCHSIDE
"""

# mypy: ignore-errors
# Tensors have no types worth writing down.
from __future__ import annotations

import sys

import torch

sys.path.insert(0, sys.argv[1])
from eagle3 import chain  # type: ignore[import-not-found]

LENGTH, HEADS, SIZE, WINDOW = 23, 2, 8, 5


def alone(q, keys, values):
    weights = torch.softmax(torch.stack([(q * k).sum(-1) for k in keys]) / SIZE**0.5, 0)
    return sum(w[:, None] * v for w, v in zip(weights, values, strict=True))


def main() -> None:
    torch.manual_seed(5)
    q, k, v, own_k, own_v = (torch.randn(1, LENGTH, HEADS, SIZE) for _ in range(5))
    # Pieces of a few rows each, as for a text that is too long for one.
    chain._CELLS = HEADS * LENGTH * 4
    found = chain.attend(q, (k, v), [(own_k, own_v)], WINDOW)
    right = []
    for i in range(LENGTH):
        seen = range(max(0, i + 1 - WINDOW + 1), i + 1)
        right.append(alone(q[0, i], [*(k[0, j] for j in seen), own_k[0, i]], [*(v[0, j] for j in seen), own_v[0, i]]))
    whole = chain.attend(q, (k, v), [(own_k, own_v)])
    print(float((found[0] - torch.stack(right)).abs().max()), float((found - whole).abs().max()))


main()
