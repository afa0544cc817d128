"""GPD303: two ranks take two communicators in opposite order, each waiting in the one for the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gpudiag.model.collective import FlightProblem, FlightSide
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.counts import conflicts, report
from gpudiag.rules.hang.standing import consequences, culprit
from gpudiag.waits import flight
from gpudiag.waits.picture import Picture

_STEPS = (
    "issue the collectives of both groups in the same order on every rank, or put them on one stream",
    "compare the lines where the ranks stand: one took the other group first",
)


def evaluate(picture: Picture) -> Iterator[Finding]:
    counted = [c for c in conflicts(picture) if not c.inside_one_communicator]
    for conflict in counted:
        found = report(picture, conflict, RULE, "ranks take two communicators in opposite order", _STEPS)
        if found is not None:
            yield found
    if not counted:
        yield from _recorded(picture)


def _recorded(picture: Picture) -> Iterator[Finding]:
    """The same from flight recorders: in each of two groups a rank is missing that waits in the other one."""
    missing = [p for p in flight.problems(picture) if p.kind == "missing"]
    for one, other in combinations(missing, 2):
        first, second = _waits_for(one, other), _waits_for(other, one)
        if one.group == other.group or first is None or second is None:
            continue
        members = [m for side in (first, second) if (m := flight.member_of(picture, side.ranks[0])) is not None]
        nodes = tuple(picture.index.owner(m.pid) for m in members)
        cause = next((c for c in picture.causes if c.cyclic and set(nodes) & set(c.nodes)), None)
        if len(nodes) < 2 or cause is None:
            continue
        told = f"{flight.ranks_of(first.ranks)} in {flight.call(one, first)}, {flight.ranks_of(second.ranks)} in"
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"ranks take two groups in opposite order: {told} {flight.call(other, second)}",
            links=((flight.side_evidence(picture, one, first),), (flight.side_evidence(picture, other, second),)),
            culprits=tuple(culprit(picture, n) for n in nodes),
            consequences=consequences(picture, cause),
            next_steps=_STEPS,
        )


def _waits_for(one: FlightProblem, other: FlightProblem) -> FlightSide | None:
    """The side of `one` that waits in it and is what `other` lacks."""
    return next((s for s in one.sides if flight.waits(s) and set(s.ranks) & set(other.absent)), None)


RULE = Rule(code="GPD303", name="collectives-cross-ordered", severity="error", evaluate=evaluate, specificity=82)
