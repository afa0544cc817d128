"""Collectives that no count shows: one rank's kernel waits on the GPU while another rank's GPU has nothing to do.

Decoding replays CUDA graphs, and NCCL counts a captured collective once. Then the counts of all ranks are equal and still,
whoever is missing. What is left is weaker: who spins and who idles.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence
from gpudiag.model.server import Member
from gpudiag.waits.communicators import leads
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.gpus import WAITING
from gpudiag.waits.motion import Motion
from gpudiag.waits.nccl import waiters


def edges(context: Context) -> Iterator[Edge]:
    """From ranks whose GPU waits to those whose GPU is idle, if nothing was launched and no count explains it."""
    ranks = [m for m in context.server.ranks if context.index.alive(m.pid)]
    states = {m.pid: d for m in ranks if (d := context.devices.get(m.pid)) is not None}
    if len(states) < len(ranks) or len(ranks) < 2 or not context.observation.has_change:
        return
    if any(leads(g) or not g.unmoved for g in context.communicators):
        return
    spinning = [m for m in ranks if states[m.pid].state in WAITING and _held(context, m)]
    idle = [m for m in ranks if states[m.pid].state == "idle"]
    if not spinning or len(spinning) + len(idle) < len(ranks):
        return
    for one in spinning:
        for other in idle:
            if not _together(context, one, other):
                continue
            yield from (
                context.node_edge(
                    waiter, context.index.owner(other.pid), "collective", "arrive", *_evidence(context, one, other), need="reply"
                )
                for waiter in waiters(context, one.pid)
            )


def _held(context: Context, member: Member) -> bool:
    return context.motion(member.pid, member.pid) is not Motion.MOVING


def _together(context: Context, one: Member, other: Member) -> bool:
    """Whether they are in one communicator. Where that is not known, they may wait for each other in any way or in none."""
    return any(g.end_of(one.pid) is not None and g.end_of(other.pid) is not None for g in context.communicators)


def _evidence(context: Context, one: Member, other: Member) -> tuple[Evidence, ...]:
    waits, idles = context.devices[one.pid], context.devices[other.pid]
    blind = "NCCL's counts are equal and still: they are blind to CUDA graphs, Send and Recv and custom all-reduce"
    return (
        waits.evidence(f"the GPU of pid {one.pid} is {waits.state}: a kernel is resident all the time and touches no memory"),
        idles.evidence(f"the GPU of pid {other.pid} is idle"),
        Evidence(source="absence", claim=blind, at=context.at),
    )
