"""Rendezvous: ranks that wait in a store for ranks that have not come."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.node import Node
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import Motion


def edges(context: Context) -> Iterator[Edge]:
    ranks = context.server.ranks
    waiting = [m for m in ranks if _in_store(context, m.pid)]
    names = {m.pid for m in waiting}
    for member in waiting:
        known = context.known(member.pid, member.pid)
        if known is None or context.motion(member.pid, member.pid) is Motion.MOVING:
            continue
        here = context.stack_evidence(member.pid, member.pid, known.frame, f"pid {member.pid} waits in the rendezvous")
        for other in ranks:
            if other.pid not in names and context.index.alive(other.pid):
                there = _why_absent(context, other.pid)
                yield context.edge((member.pid, member.pid), context.index.owner(other.pid), "store", "arrive", here, there)
        absent = [(gone.node, gone.evidence) for gone in context.lost] or list(_elsewhere(context))
        for gone, there in absent:
            yield context.edge((member.pid, member.pid), gone, "store", "arrive", here, there)


def _why_absent(context: Context, pid: int) -> Evidence:
    if context.index.stopped(pid):
        return Evidence(source="process-state", claim=f"pid {pid} is stopped and takes part in no rendezvous", at=context.at)
    return Evidence(source="source-text", claim=f"pid {pid} is not in the rendezvous", at=context.at)


def _in_store(context: Context, pid: int) -> bool:
    """A stopped process stands in the same frame, but neither answers nor goes on."""
    if context.index.stopped(pid):
        return False
    known = context.known(pid, pid) if context.index.alive(pid) else None
    return known is not None and known.kind == "store"


def _elsewhere(context: Context) -> Iterator[tuple[Node, Evidence]]:
    """Ranks that must be on other hosts: the world is larger than what is here."""
    size = context.server.world_size
    seen = {m.rank.global_ for m in context.server.ranks}
    if size is None or None in seen:
        return
    for number in range(size):
        if number not in seen:
            claim = f"rank {number} of {size} has no process on this host"
            yield node.rank("global", number), Evidence(source="process-table", claim=claim, at=context.at)
