"""What NCCL's counts say about ranks that wait for each other: other operations, or another order of communicators."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label
from gpudiag.waits.communicators import Lead, leads
from gpudiag.waits.graph import Cause
from gpudiag.waits.nccl import lead_evidence
from gpudiag.waits.picture import Picture


class Conflict(Struct, frozen=True, kw_only=True):
    """Two ranks, each of which launched something that the other did not."""

    cause: Cause
    one: Lead
    other: Lead

    @property
    def inside_one_communicator(self) -> bool:
        return self.one.group.hash == self.other.group.hash


def conflicts(picture: Picture) -> Iterator[Conflict]:
    """One for each cycle of ranks in which every wait is for a collective, by the first pair that leads in opposite ways."""
    found = [lead for group in picture.communicators for lead in leads(group)]
    for cause in picture.causes:
        inside = [e for n in cause.nodes for e in picture.edges_from(n) if e.holder in cause.nodes]
        if not cause.cyclic or not all(e.wait.kind == "collective" for e in inside):
            continue
        pids = {node.pid_of(n) for n in cause.nodes}
        here = [lead for lead in found if lead.ahead.pid in pids and lead.behind.pid in pids]
        pairs = [
            Conflict(cause=cause, one=one, other=other)
            for one in here
            for other in here
            if one.ahead.pid == other.behind.pid and one.behind.pid == other.ahead.pid and one.ahead.rank < other.ahead.rank
        ]
        if pairs:
            yield min(pairs, key=lambda c: (not c.inside_one_communicator, c.one.ahead.rank, c.other.ahead.rank))


def report(picture: Picture, conflict: Conflict, rule: Rule[Picture], what: str, steps: tuple[str, ...]) -> Finding | None:
    """The finding about a conflict; None where it cannot be told whether the ranks stand still."""
    one, other = conflict.one, conflict.other
    nodes = tuple(picture.index.owner(lead.ahead.pid) for lead in (one, other))
    moved = still_counts(picture, one)
    if moved is None:
        return None
    links: list[Link] = [(lead_evidence(one, picture),), (lead_evidence(other, picture),), (moved,)]
    sides = ", ".join(f"{label(picture, n)} in {side(lead)}" for n, lead in zip(nodes, (one, other), strict=True))
    return finding(
        rule.code,
        rule.name,
        rule.severity,
        title=f"{what}: {sides}",
        links=links,
        culprits=tuple(culprit(picture, n) for n in nodes),
        consequences=consequences(picture, conflict.cause),
        next_steps=steps,
    )


def side(lead: Lead) -> str:
    """'AllReduce 21 of communicator ..8107b8'."""
    return f"{lead.operation} {lead.owed} of communicator {lead.group.name}"


def still_counts(picture: Picture, lead: Lead) -> Evidence | None:
    """That the counts did not move: weak with two looks, strong after a third at least 5 s later."""
    looks, span = len(picture.observation.snapshots), picture.observation.span_s
    if looks < 2 or not lead.group.unmoved:
        return None
    source = "long-look" if looks >= 3 and span >= 5.0 else "two-looks"
    claim = f"no rank of communicator {lead.group.name} launched anything in {looks} looks over {span:.1f} s"
    return Evidence(source=source, claim=claim, at=picture.at)
