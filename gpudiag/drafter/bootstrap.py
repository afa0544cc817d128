"""Intervals by bootstrap over requests: rounds of one request are alike, so requests are what is drawn again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from gpudiag.model.speculation import Estimate

T = TypeVar("T")
U = TypeVar("U")

DRAWS: Final = 1000
LEAST: Final = 5
"""Fewer requests than this give an interval that means nothing."""
_SEED: Final = 20


def estimate(items: Sequence[T], statistic: Callable[[Sequence[T]], float | None]) -> Estimate | None:
    """The statistic of all items with its percentile interval; None where it has no value. The same items give the same."""
    value = statistic(items)
    if value is None:
        return None
    chance = random.Random(_SEED)  # noqa: S311  repeatable on purpose
    return _with_interval(value, [statistic(chance.choices(items, k=len(items))) for _ in _draws(items)])


def estimate_of_two(
    one: Sequence[T], other: Sequence[U], statistic: Callable[[Sequence[T], Sequence[U]], float | None]
) -> Estimate | None:
    """The same for a statistic of two independent sets of requests."""
    value = statistic(one, other)
    if value is None:
        return None
    chance = random.Random(_SEED)  # noqa: S311
    draws = _draws(one if len(one) < len(other) else other)
    drawn = [statistic(chance.choices(one, k=len(one)), chance.choices(other, k=len(other))) for _ in draws]
    return _with_interval(value, drawn)


def _draws(items: Sequence[object]) -> range:
    return range(DRAWS if len(items) >= LEAST else 0)


def _with_interval(value: float, drawn: Sequence[float | None]) -> Estimate:
    known = sorted(v for v in drawn if v is not None)
    if len(known) < DRAWS // 2:
        return Estimate(value=value)
    return Estimate(value=value, low=known[int(0.025 * len(known))], high=known[int(0.975 * len(known))])
