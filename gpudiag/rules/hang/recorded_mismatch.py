"""What flight recorders say about ranks that issued the same number of a group and not the same call: for GPD302."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.collective import FlightProblem, FlightSide
from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences
from gpudiag.waits import flight
from gpudiag.waits.picture import Picture

_WHERE = re.compile(r"(.{0,100}) \((.{1,300}):(\d{1,9})\)", re.DOTALL)
_STEPS = {
    "type": "compare the lines named above: all ranks of a group must issue the same collectives in the same order",
    "size": "compare the shapes at the lines named above: batch, padding or sharding differs between the ranks; NCCL does not"
    " notice, and what comes out is wrong even where nothing hangs",
    "dtype": "compare the data types at the lines named above: a cast or an autocast that only some ranks have",
}
_NEXT = "look for a condition on rank, batch size or an exception that only some ranks took"


def recorded(picture: Picture, kinds: tuple[str, ...]) -> tuple[FlightProblem, ...]:
    """In each group the first disagreement about a call, if it is one of `kinds` and involves a rank of this server."""
    found: dict[str, FlightProblem] = {}
    for problem in flight.problems(picture):
        if problem.kind in flight.DIFFERS and len(problem.sides) > 1:
            found.setdefault(problem.group, problem)
    return tuple(
        p for p in found.values() if p.kind in kinds and any(flight.member_of(picture, r) for s in p.sides for r in s.ranks)
    )


def report(picture: Picture, kinds: tuple[str, ...], rule: Rule[Picture]) -> Iterator[Finding]:
    """One finding for each group. That the records differ is a fact of its own: nobody needs to stand still for it."""
    for problem in recorded(picture, kinds):
        links: list[Link] = [(flight.side_evidence(picture, problem, side),) for side in problem.sides[:2]]
        culprits = tuple(_culprit(picture, side) for side in problem.sides)
        cause = next((c for n in culprits for c in picture.causes if n.node in c.nodes), None)
        yield finding(
            rule.code,
            rule.name,
            rule.severity,
            title=_title(problem),
            links=links,
            culprits=culprits,
            consequences=consequences(picture, cause),
            notes=(*(flight.side_evidence(picture, problem, side) for side in problem.sides[2:]), *_unread(picture, problem)),
            next_steps=(_STEPS[problem.kind], _NEXT),
        )


def _title(problem: FlightProblem) -> str:
    if problem.kind == "type":
        sides = ", ".join(f"{flight.ranks_of(s.ranks)} {flight.call(problem, s)}" for s in problem.sides[:3])
        return f"ranks called different collectives: {sides}"
    what = "sizes" if problem.kind == "size" else "data types"
    shown = ", ".join(f"{flight.ranks_of(s.ranks)} {s.sizes if problem.kind == 'size' else s.dtypes}" for s in problem.sides[:3])
    return f"ranks called {flight.call(problem, problem.sides[0])} with different {what}: {shown}"


def _culprit(picture: Picture, side: FlightSide) -> Culprit:
    """The first rank of a side, and the line from which it called; a rank of another host has no process here."""
    rank = side.ranks[0]
    member = flight.member_of(picture, rank)
    match = _WHERE.fullmatch(side.where)
    place = picture.index.owner(member.pid) if member is not None else node.rank("global", rank)
    pid = member.pid if member is not None else None
    return Culprit(
        node=place,
        pid=pid,
        tid=node.tid_of(place) or pid,
        rank=rank,
        file=match[2] if match else None,
        line=int(match[3]) if match else None,
        function=match[1] if match else None,
    )


def _unread(picture: Picture, problem: FlightProblem) -> tuple[Evidence, ...]:
    if not problem.unread:
        return ()
    claim = f"the dumps of {flight.ranks_of(problem.unread)} were not there"
    return (Evidence(source="absence", claim=claim, at=picture.at),)
