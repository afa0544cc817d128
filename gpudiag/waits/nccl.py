"""Who is behind in which communicator: edges from the collectives that each rank launched.

NCCL counts what the host enqueued. Healthy ranks run ahead of each other, so only counts that are unequal and moved on
neither side say something. Blind here: collectives replayed from CUDA graphs, custom all-reduce, Send and Recv, symmetric
memory, gloo; see `gpudiag.waits.spin`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.node import Node
from gpudiag.waits.communicators import End, Group, Lead, leads, source
from gpudiag.waits.context import Context, Edge


def launched(context: Context, pid: int) -> int | None:
    """Collectives that a process launched between the first and the last look, None where that is not known."""
    ends = [e for g in context.communicators if (e := g.end_of(pid)) is not None and e.before is not None]
    return sum(e.now.total - e.before.total for e in ends if e.before is not None) if ends else None


def lead_evidence(lead: Lead, context: Context) -> Evidence:
    """'rank 0 (pid 42) launched AllReduce up to number 21 of communicator ..f60e91, rank 1 (pid 43) up to 20'."""
    looks, span = len(context.observation.snapshots), context.observation.span_s
    weaker = max((lead.ahead.nccl, lead.behind.nccl), key=lambda n: source(n) != "nccl-memory")
    return Evidence(
        source=source(weaker),
        claim=(
            f"rank {lead.ahead.rank} (pid {lead.ahead.pid}) launched {lead.operation} up to number {lead.done} of communicator"
            f" {lead.group.name}, rank {lead.behind.rank} (pid {lead.behind.pid}) up to {lead.owed - 1}"
        ),
        excerpt=(
            f"{_counts(lead.ahead)} against {_counts(lead.behind)}, unmoved in {looks} looks over {span:.1f} s"
            f" (NCCL {weaker.version or 'of unknown version'})"
        ),
        at=context.at,
    )


def _counts(end: End) -> str:
    return " ".join(f"{name} {count}" for name, count in end.now.by_name().items() if count) or "nothing"


def edges(context: Context) -> Iterator[Edge]:
    """From each rank that is ahead to each that is behind it, and to ranks that are gone."""
    for group in context.communicators:
        found = leads(group)
        for lead in found:
            for waiter in waiters(context, lead.ahead.pid):
                yield _edge(
                    context, waiter, context.index.owner(lead.behind.pid), lead_evidence(lead, context), _device(context, lead)
                )
        yield from _to_lost(context, group)


def waiters(context: Context, pid: int) -> tuple[Node, ...]:
    """What waits inside the collective: the kernel on the GPU, and the main thread unless that only waits for work."""
    device = context.devices.get(pid)
    known = context.known(pid, pid)
    idle_loop = known is not None and known.need == "work"
    kernel = (device.node,) if device is not None else ()
    return kernel if idle_loop else (*kernel, node.thread(pid, pid))


def _edge(context: Context, waiter: Node, holder: Node, *evidence: Evidence | None) -> Edge:
    shown = [e for e in evidence if e is not None]
    return context.node_edge(waiter, holder, "collective", "arrive", *shown, need="reply")


def _device(context: Context, lead: Lead) -> Evidence | None:
    device = context.devices.get(lead.ahead.pid)
    return device.evidence(f"the GPU of rank {lead.ahead.rank} is {device.state}") if device is not None else None


def _to_lost(context: Context, group: Group) -> Iterator[Edge]:
    """A rank that is gone owes everything: those that stand in a kernel of a communicator it belonged to wait for it."""
    missing = set(range(group.size)) - {e.rank for e in group.ends}
    if not missing or not group.unmoved:
        return
    for gone in context.lost:
        numbers = {n for n in (gone.rank.global_, gone.rank.tp) if n is not None}
        if not numbers & missing and not len(context.lost) == len(missing) == 1:
            continue
        for end in group.ends:
            device = context.devices.get(end.pid)
            if device is None or device.state not in ("spinning", "resident"):
                continue
            claim = f"rank {end.rank} of communicator {group.name} waits in a kernel; {gone.node} was in that communicator"
            yield from (
                _edge(context, waiter, gone.node, device.evidence(claim), gone.evidence) for waiter in waiters(context, end.pid)
            )
