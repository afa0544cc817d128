"""What torch's flight recorders of all ranks say, as edges: who waits in a call for whom, and since when.

A record is made when the host issues a call, and tells when that was. One that is not finished seconds later waits. Blind
here: whatever does not go through torch.distributed, and what a CUDA graph replays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.collective import FlightAnalysis, FlightProblem, FlightSide
from gpudiag.model.finding import Evidence
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member
from gpudiag.model.wait import WaitKind
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import Motion
from gpudiag.waits.nccl import launched, waiters

SOURCE: Final = "flight-recorder"
WAITS_S: Final = 2.0
"""From here on a call counts as waiting: finished ones are noticed by torch's watchdog after a tenth of a second or so."""
DIFFERS: Final = ("type", "size", "dtype")
"""Kinds of problems in which ranks issued something, but not the same."""
_MOST_RANKS: Final = 8


def problems(context: Context) -> tuple[FlightProblem, ...]:
    """None where there is no dump."""
    found = analysis(context)
    return found.problems if found is not None else ()


def analysis(context: Context) -> FlightAnalysis | None:
    flight = context.observation.last.flight
    return flight.value if isinstance(flight, Ok) else None


def member_of(context: Context, rank: int) -> Member | None:
    """The member that a global rank is, if it is on this host."""
    return next((m for m in context.server.ranks if context.server.global_rank(m.rank) == rank), None)


def waits(side: FlightSide) -> bool:
    """Whether the ranks of a side had been in their call for seconds when the recorder was dumped."""
    return side.state != "completed" and side.waited_s is not None and side.waited_s >= WAITS_S


def name(problem: FlightProblem) -> str:
    """'group default_pg'; the number alone says little, but torch gives most groups no other name."""
    known = problem.description and problem.description != "undefined"
    return f"group {problem.description if known else problem.group}"


def call(problem: FlightProblem, side: FlightSide) -> str:
    """'all_reduce 21 of group default_pg'."""
    operation = side.operation.rpartition(":")[2]
    return f"{operation} {problem.sequence} of {name(problem)}" if problem.kind != "p2p" else f"{operation} in {name(problem)}"


def ranks_of(ranks: tuple[int, ...]) -> str:
    """'rank 4', 'ranks 0, 1, 2 and 1020 more'."""
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}{more}"


def side_evidence(context: Context, problem: FlightProblem, side: FlightSide) -> Evidence:
    """'rank 0 called all_reduce 21 of group default_pg and was in it for 7.2 s when its recorder was dumped'."""
    since = f" and was in it for {side.waited_s:.1f} s when the recorder was dumped" if waits(side) else ""
    shown = [part for part in (side.where, side.sizes, side.dtypes) if part]
    claim = f"{ranks_of(side.ranks)} called {call(problem, side)}{since}"
    return Evidence(source=SOURCE, claim=claim, excerpt="; ".join(shown), at=_at(context))


def away(context: Context, pid: int) -> tuple[Evidence, ...]:
    """That a rank did not come to a call in which others have waited for seconds: who waits, and what the rank did last.

    Empty where nothing says so.
    """
    for problem in problems(context):
        waiting = next((side for side in problem.sides if waits(side)), None)
        missing = next((r for r in problem.absent if (m := member_of(context, r)) is not None and m.pid == pid), None)
        if waiting is not None and missing is not None:
            return (side_evidence(context, problem, waiting), _absence(context, problem, missing))
    return ()


def _absence(context: Context, problem: FlightProblem, rank: int) -> Evidence:
    if problem.kind == "p2p":
        claim = f"the flight recorder of rank {rank} has no call that would answer it"
    else:
        claim = f"rank {rank} has recorded nothing of {name(problem)} after number {problem.sequence - 1}"
    dumped = "dumped for this look" if (found := analysis(context)) is not None and found.asked else "as dumped to disk"
    return Evidence(source=SOURCE, claim=claim, excerpt=dumped, at=_at(context))


def _at(context: Context) -> float | None:
    found = analysis(context)
    return found.written_at[1] if found is not None and found.written_at is not None else None


def edges(context: Context) -> Iterator[Edge]:
    """From ranks that wait in a call to those that did not come to it, or came to another one."""
    for problem in problems(context):
        for side in problem.sides:
            if not waits(side):
                continue
            others = [r for o in problem.sides if o is not side and waits(o) for r in o.ranks] if problem.kind in DIFFERS else []
            for rank in side.ranks:
                yield from _from_rank(context, problem, side, rank, (*problem.absent, *others))


def _from_rank(context: Context, problem: FlightProblem, side: FlightSide, rank: int, holders: tuple[int, ...]) -> Iterator[Edge]:
    member = member_of(context, rank)
    if member is None or not context.index.alive(member.pid) or _moved_on(context, member):
        return
    known = context.known(member.pid, member.pid)
    kind: WaitKind = "p2p" if problem.kind == "p2p" else "collective"
    polls = known is not None and known.polls and context.demand.state == "none"
    for other in holders:
        holder = member_of(context, other)
        if holder is None:
            continue
        evidence = (side_evidence(context, problem, side), _absence(context, problem, other))
        if other not in problem.absent:
            there = next(s for s in problem.sides if other in s.ranks)
            evidence = (evidence[0], side_evidence(context, problem, there))
        for waiter in waiters(context, member.pid):
            yield context.node_edge(
                waiter, context.index.owner(holder.pid), kind, "arrive", *evidence, need="work" if polls else "reply"
            )


def _moved_on(context: Context, member: Member) -> bool:
    """Whether a rank was seen to get anywhere between the looks: then its dump tells of a moment that is over."""
    return context.motion(member.pid, member.pid) is Motion.MOVING or bool(launched(context, member.pid))
