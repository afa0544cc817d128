"""GPD325: a rank waits in a send or receive for a peer that never comes to it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, stacks_readable, standing, still, terminals
from gpudiag.waits import flight
from gpudiag.waits.motion import BUSY
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end in terminals(picture):
        into = sorted(
            (e for e in picture.edges_to(end.node) if e.wait.kind == "p2p"), key=lambda e: node.pid_of(e.waiter) is None
        )
        away = flight.away(picture, end.pid)
        rests = (*(still(picture, end.node) or ()), *away)
        if not into or not rests or end.motion in BUSY or not (stacks_readable(end.process) or away):
            continue
        waiter = into[0].waiter
        known = picture.known(node.pid_of(waiter) or 0, node.tid_of(waiter) or 0)
        op = known.op if known is not None and known.op else "a point-to-point call"
        links: list[Link] = [into[0].wait.evidence, rests, standing(picture, end.node)]
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, waiter)} waits in {op} for {label(picture, end.node)}, which never comes to it",
            links=links,
            culprits=(culprit(picture, end.node), culprit(picture, waiter)),
            consequences=consequences(picture, end.cause),
            next_steps=(
                (
                    f"look at the line where {label(picture, end.node)} stands: every receive needs its send,"
                    " in the same order on both sides"
                ),
            ),
        )


RULE = Rule(code="GPD325", name="p2p-peer-missing", severity="error", evaluate=evaluate, specificity=55)
