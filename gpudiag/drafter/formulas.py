"""Arithmetic of speculative decoding with chains of drafts.

Length and cost as in Leviathan, Kalman and Matias (2023), arXiv 2211.17192, equation 1, with the cost of a round measured
instead of assumed. Acceptance length includes the token that the target adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_HALVINGS: Final = 60


def survival_of(conditional: Sequence[float]) -> tuple[float, ...]:
    """Share of rounds in which each position and all before it were accepted."""
    made: list[float] = []
    for share in conditional:
        made.append(share * (made[-1] if made else 1.0))
    return tuple(made)


def conditional_of(survival: Sequence[float]) -> tuple[float, ...]:
    """Acceptance of each position where it was reached; ends at the first that nothing reaches."""
    made: list[float] = []
    before = 1.0
    for share in survival:
        if before <= 0:
            break
        made.append(share / before)
        before = share
    return tuple(made)


def length_of(survival: Sequence[float]) -> float:
    """Acceptance length of a chain."""
    return 1.0 + sum(survival)


def length_at(each: float, steps: int) -> float:
    """Acceptance length if every position is accepted with the same probability."""
    return sum(each**i for i in range(steps + 1))


def length_of_rate(rate: float, steps: int) -> float:
    """Acceptance length of a chain from the share of drafts accepted."""
    return 1.0 + steps * rate


def each_for(length: float, steps: int) -> float | None:
    """The equal acceptance of each position that gives this length; None if no acceptance does."""
    if length > steps + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if length_at(middle, steps) < length else (low, middle)
    return high


def rate_for(length: float, steps: int) -> float | None:
    """The share of drafts of a chain that gives this length."""
    return (length - 1) / steps if steps else None


def ratio_of(length: float, speedup: float) -> float:
    """R, the cost of a round in plain decode steps, from acceptance length and tokens a second against a plain run."""
    return length / speedup


def extended(survival: Sequence[float], steps: int) -> tuple[float, ...]:
    """Survival for another number of steps: cut, or carried on with the last conditional that was measured."""
    known = list(survival[:steps])
    if known and len(known) < steps:
        conditionals = conditional_of(known)
        last = conditionals[-1] if len(conditionals) == len(known) else 0.0
        while len(known) < steps:
            known.append(known[-1] * last)
    return tuple(known)
