"""What a round costs in plain decode steps, where speculation breaks even, and which number of steps is best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.drafter.bootstrap import estimate_of_two
from gpudiag.drafter.formulas import each_for, extended, length_of, rate_for, ratio_of
from gpudiag.model.speculation import (
    Acceptance,
    Cost,
    Estimate,
    RequestReading,
    ServerRun,
    StepsChoice,
    StepsRow,
)

_MORE_STEPS: Final = 2
_MOST_STEPS: Final = 16


def measured(
    served: ServerRun, plain: ServerRun, steps: int, *, simulated: ServerRun | None, acceptance: Acceptance | None
) -> Cost | None:
    """R from the time of a round and of a plain step, both at the same concurrency; None where one of them is not known.

    With a server that simulates acceptance the round is timed there: its cost does not depend on what is accepted.
    """
    rounds, plains = _timed(simulated or served), _stepped(plain)
    ratio = estimate_of_two(rounds, plains, _ratio) or _by_totals(simulated or served, plains)
    if ratio is None:
        return None
    if simulated is None:
        speedup = estimate_of_two(_stepped(served), plains, _speedup)
    else:
        speedup = Estimate(value=acceptance.length.value / ratio.value) if acceptance is not None else None
    return Cost(
        ratio=ratio,
        round_s=_round_s(rounds),
        step_s=_step_s(plains),
        speedup=speedup,
        break_even_rate=None if served.tree else rate_for(max(1.0, ratio.value), steps),
        break_even_each=each_for(ratio.value, steps),
        basis="plain run" if simulated is None else "simulated and plain run",
    )


def given(length: float, speedup: float, steps: int) -> Cost:
    """R from an acceptance length and a speed-up that somebody measured."""
    ratio = ratio_of(length, speedup)
    return Cost(
        ratio=Estimate(value=ratio),
        speedup=Estimate(value=speedup),
        break_even_rate=rate_for(max(1.0, ratio), steps),
        break_even_each=each_for(ratio, steps),
        basis="given speed-up",
    )


def choose(survival: Sequence[float], steps: int, ratio: float, other: tuple[int, float] | None = None) -> StepsChoice | None:
    """The number of steps with the highest speed-up. `other` is a number of steps and R of a second run.

    Survival beyond what was measured is carried on with the last conditional. With one run only, cost is taken to rise evenly
    from a plain step at 0 steps. None where R is not above 1, which no round costs: the runs cannot be compared.
    """
    if not survival or not steps or ratio <= 1:
        return None
    if other is not None and other[0] not in (0, steps):
        each = (other[1] - ratio) / (other[0] - steps)
    else:
        each, other = (ratio - 1) / steps, None
    rows = [StepsRow(steps=0, length=1.0, ratio=1.0, speedup=1.0, measured=True)]
    for count in range(1, min(steps + _MORE_STEPS, _MOST_STEPS) + 1):
        length, cost = length_of(extended(survival, count)), max(ratio + each * (count - steps), _EPSILON)
        rows.append(StepsRow(steps=count, length=length, ratio=cost, speedup=length / cost, measured=count == steps))
    return StepsChoice(
        best=max(rows, key=lambda row: row.speedup).steps, basis="assumed" if other is None else "fitted", rows=tuple(rows)
    )


_EPSILON: Final = 1e-6


def _timed(run: ServerRun) -> list[RequestReading]:
    return [r for r in run.requests if r.rounds and r.decode_s]


def _stepped(run: ServerRun) -> list[RequestReading]:
    return [r for r in run.requests if r.decode_s and r.decode_tokens]


def _round_s(requests: Sequence[RequestReading]) -> float | None:
    rounds = sum(r.rounds or 0 for r in requests)
    return sum(r.decode_s or 0.0 for r in requests) / rounds if rounds else None


def _step_s(requests: Sequence[RequestReading]) -> float | None:
    tokens = sum(r.decode_tokens or 0 for r in requests)
    return sum(r.decode_s or 0.0 for r in requests) / tokens if tokens else None


def _ratio(spec: Sequence[RequestReading], plain: Sequence[RequestReading]) -> float | None:
    round_s, step_s = _round_s(spec), _step_s(plain)
    return round_s / step_s if round_s and step_s else None


def _speedup(spec: Sequence[RequestReading], plain: Sequence[RequestReading]) -> float | None:
    fast, slow = _step_s(spec), _step_s(plain)
    return slow / fast if fast and slow else None


def _by_totals(run: ServerRun, plains: Sequence[RequestReading]) -> Estimate | None:
    """R without an interval, where rounds were counted for all requests together and by nobody else's."""
    spent, step_s = sum(r.decode_s or 0.0 for r in run.requests), _step_s(plains)
    rounds = run.counters.rounds if run.counters is not None and run.tokens_of_others == 0 else None
    return Estimate(value=spent / rounds / step_s) if rounds and step_s and spent else None
