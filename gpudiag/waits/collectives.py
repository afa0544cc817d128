"""Collectives and point-to-point calls, read from the stacks of all ranks of a group: who is in it and who is not."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from gpudiag.engines.frames import C10D, Known
from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.server import Member
from gpudiag.model.wait import Need
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import Motion


class InCollective(Struct, frozen=True, kw_only=True):
    """A rank whose main thread stands in a collective."""

    member: Member
    known: Known

    @property
    def op(self) -> str:
        return self.known.op or "collective"


def edges(context: Context) -> Iterator[Edge]:
    ranks = context.server.ranks
    inside = in_collectives(context)
    names = {i.member.pid for i in inside}
    for one in inside:
        if not _stands(context, one.member.pid):
            continue
        group = [m for m in ranks if m.pid != one.member.pid and _same_group(one.member, m)]
        others = [m for m in group if m.pid not in names]
        other_ops = [i for i in inside if i.member.pid != one.member.pid and i.op != one.op and _same_group(one.member, i.member)]
        for member in others:
            yield _collective_edge(
                context, one, context.index.owner(member.pid), f"{_label(member)} (pid {member.pid}) is not in a collective"
            )
        for other in other_ops:
            yield _collective_edge(
                context,
                one,
                context.index.owner(other.member.pid),
                f"{_label(other.member)} (pid {other.member.pid}) is in {other.op} instead",
            )
        for gone in context.lost:
            yield _collective_edge(context, one, gone.node, f"{gone.node} is gone")
    yield from _p2p(context)


def in_collectives(context: Context) -> tuple[InCollective, ...]:
    """Living ranks whose main thread stands inside a collective in the last look."""
    found = []
    for member in context.server.ranks:
        known = context.known(member.pid, member.pid) if context.index.alive(member.pid) else None
        if known is not None and known.kind == "collective" and not context.index.stopped(member.pid):
            found.append(InCollective(member=member, known=known))
    return tuple(found)


def _stands(context: Context, pid: int) -> bool:
    """A collective may be waited for asleep or spinning: what counts is that the stack is the same in every look."""
    return context.motion(pid, pid) in (Motion.FROZEN, Motion.POLLING, Motion.SPINNING, Motion.UNKNOWN)


def _collective_edge(context: Context, one: InCollective, holder: str, claim: str) -> Edge:
    pid = one.member.pid
    here = context.stack_evidence(pid, pid, one.known.frame, f"{_label(one.member)} (pid {pid}) stands in {one.op}")
    there = Evidence(
        source="elimination" if _where(context, holder) else "absence",
        claim=claim,
        excerpt=_where(context, holder),
        at=context.at,
    )
    # A poll that an idle engine repeats for ever owes nothing by itself, however long it stands there.
    need: Need = "work" if one.known.polls and context.demand.state == "none" else "reply"
    return context.edge((pid, pid), holder, "collective", "arrive", here, there, need=need)


def _where(context: Context, holder: str) -> str:
    pid, tid = node.pid_of(holder), node.tid_of(holder)
    stack = context.stack(pid, tid) if pid is not None and tid is not None else None
    return stack.frames[0].where if stack and stack.frames else ""


def _p2p(context: Context) -> Iterator[Edge]:
    """A receive names its source; a send its destination. Both are numbers in the frame of the c10d call."""
    for member in context.server.ranks:
        known = context.known(member.pid, member.pid) if context.index.alive(member.pid) else None
        if known is None or known.kind != "p2p" or not _stands(context, member.pid):
            continue
        peer = _peer(context, member, known)
        if peer is None or peer.pid == member.pid:
            continue
        theirs = context.known(peer.pid, peer.pid)
        if theirs is not None and theirs.kind == "p2p" and theirs.op != known.op:
            continue
        evidence = context.stack_evidence(
            member.pid, member.pid, known.frame, f"{_label(member)} (pid {member.pid}) stands in {known.op} with {_label(peer)}"
        )
        yield context.edge((member.pid, member.pid), context.index.owner(peer.pid), "p2p", "arrive", evidence)


def _peer(context: Context, member: Member, known: Known) -> Member | None:
    """Who is at the other end: by c10d's global `src` or `dst`; an engine's own send and receive count within a pipeline."""
    receives = bool(known.op and known.op.startswith("recv"))
    values = known.frame.values
    numbers = [values.get(n, "") for n in (("group_src", "src") if receives else ("group_dst", "dst"))]
    number = next((int(n) for n in numbers if n.isdigit()), None)
    if number is None or not known.frame.file.endswith(C10D):
        # A pipeline receives from the stage before it and sends to the one behind.
        return _stage(context, member, -1 if receives else 1)
    return next((m for m in context.server.ranks if context.server.global_rank(m.rank) == number), None)


def _stage(context: Context, member: Member, step: int) -> Member | None:
    if member.rank.pp is None:
        return None
    return next(
        (
            m
            for m in context.server.ranks
            if m.rank.pp == (member.rank.pp or 0) + step and (m.rank.tp, m.rank.dp) == (member.rank.tp, member.rank.dp)
        ),
        None,
    )


def _same_group(one: Member, other: Member) -> bool:
    """Tensor-parallel peers share their data- and pipeline-parallel coordinates; without coordinates all ranks are one group."""
    return (one.rank.dp, one.rank.pp) == (other.rank.dp, other.rank.pp)


def _label(member: Member) -> str:
    rank = member.rank
    for name, value in (("rank", rank.global_), ("TP", rank.tp), ("PP", rank.pp), ("DP", rank.dp), ("EP", rank.ep)):
        if value is not None:
            return f"{name} {value}" if name == "rank" else f"{name}{value}"
    return member.role
