"""Puts together what was measured: acceptance by every source, cost, number of steps, and the shape of the positions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from gpudiag.drafter import cost as costs
from gpudiag.drafter.acceptance import by_counters, by_requests, dead_ends, domains, stretches
from gpudiag.drafter.formulas import each_for, length_of_rate, rate_for
from gpudiag.errors import UsageError
from gpudiag.model.decoding import decode_json
from gpudiag.model.speculation import Acceptance, Estimate, Measurement, ServerRun, SpeculationReport
from gpudiag.rules.speculation.shapes import shape_of

MOST_BYTES: Final = 64 << 20
_MOST_STEPS: Final = 1024


def measurement(
    served: ServerRun,
    *,
    plain: ServerRun | None = None,
    simulated: ServerRun | None = None,
    other: ServerRun | None = None,
    log: Acceptance | None = None,
) -> Measurement:
    """Everything that follows from these runs and the lines of a log. Pure."""
    found = [a for a in (by_requests(served), _totals(served), log) if a is not None]
    best = found[0] if found else None
    steps = served.steps or (len(best.survival) or None if best is not None else None)
    cost = None
    if plain is not None and steps:
        cost = costs.measured(served, plain, steps, simulated=simulated, acceptance=best)
    choice = None
    if cost is not None and best is not None and steps and not served.tree:
        survival = [s.value for s in best.survival]
        choice = costs.choose(survival, steps, cost.ratio.value, _second(other, plain))
    return Measurement(
        steps=steps,
        served=served,
        plain=plain,
        simulated=simulated,
        acceptance=_with_each(best, steps),
        others=tuple(found[1:]),
        stretches=stretches(served),
        dead_ends=dead_ends(served),
        domains=domains(served),
        cost=cost,
        choice=choice,
        shape=shape_of(best) if best is not None else None,
    )


def by_hand(*, steps: int, rate: float | None, length: float | None, speedup: float | None) -> Measurement:
    """The same from numbers that somebody measured: acceptance rate or length, and speed-up."""
    if length is None:
        length = length_of_rate(rate or 0.0, steps)
    return Measurement(
        steps=steps,
        acceptance=Acceptance(
            source="given", length=Estimate(value=length), rate=rate_for(length, steps), each=each_for(length, steps)
        ),
        cost=costs.given(length, speedup, steps) if speedup else None,
    )


def of_log(lines: Acceptance, *, steps: int | None, speedup: float | None) -> Measurement:
    """The same from the lines of a log, with the number of steps and the speed-up where somebody knows them."""
    steps = steps or len(lines.survival) or None
    return Measurement(
        steps=steps,
        acceptance=_with_each(lines, steps),
        cost=costs.given(lines.length.value, speedup, steps) if speedup and steps else None,
        shape=shape_of(lines),
    )


def saved_run(path: Path, option: str) -> ServerRun:
    """The run that an earlier report holds. Raises UsageError."""
    help = "gpudiag drafter measure URL --json -o FILE writes one"
    try:
        with path.open("rb") as opened:
            body = opened.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise UsageError(f"{option} {path}: larger than any report", help=help)
        report = decode_json(body, SpeculationReport)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}", help=help) from None
    except msgspec.DecodeError:
        raise UsageError(f"{option} {path}: no report of drafter measure", help=help) from None
    if report.measurement.served is not None and not 0 <= (report.measurement.served.steps or 0) <= _MOST_STEPS:
        raise UsageError(f"{option} {path}: {report.measurement.served.steps} steps are no number of steps", help=help)
    if report.measurement.served is None:
        raise UsageError(f"{option} {path}: this report holds no run of a server", help=help)
    return report.measurement.served


def _totals(served: ServerRun) -> Acceptance | None:
    """By the counters over the whole run; with requests of others in it, it is theirs too."""
    if served.counters is None:
        return None
    ended = sum(r.problem is None for r in served.requests)
    return by_counters(served.counters, ended if served.tokens_of_others == 0 else None, served.tokens_counted)


def _with_each(acceptance: Acceptance | None, steps: int | None) -> Acceptance | None:
    if acceptance is None or not steps:
        return acceptance
    return msgspec.structs.replace(acceptance, each=each_for(acceptance.length.value, steps))


def _second(other: ServerRun | None, plain: ServerRun | None) -> tuple[int, float] | None:
    """Number of steps and R of a second run."""
    if other is None or plain is None or not other.steps:
        return None
    cost = costs.measured(other, plain, other.steps, simulated=None, acceptance=None)
    return (other.steps, cost.ratio.value) if cost is not None else None
