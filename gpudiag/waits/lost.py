"""Ranks that should be there and are not."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec import Struct

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.node import Node
from gpudiag.model.process import GONE
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member, Rank, Server
from gpudiag.waits.index import Index


class Lost(Struct, frozen=True, kw_only=True):
    """A rank without a living process. `pid` is its zombie or last known pid, None where only the number is missing."""

    node: Node
    rank: Rank
    pid: int | None
    exit_code: int | None
    evidence: Evidence


def lost(index: Index, server: Server) -> tuple[Lost, ...]:
    """Ranks that died or vanished, by process where one is left, else by the gap in the numbering."""
    numbers = _gaps(index, server)
    roles = {m.role for m in server.ranks}
    parents = {index.by_pid[m.pid].ppid for m in server.ranks if m.pid in index.by_pid} if numbers else set()
    dead = [m for m in server.members if not index.alive(m.pid) and _was_rank(m, index, roles, parents)]
    unnamed = sum(not m.ranked for m in dead)
    found = []
    for member in dead:
        rank = member.rank
        if not member.ranked and len(numbers) == 1 and unnamed == 1:
            rank = numbers[0][1]
        found.append(_dead(index, member.pid, rank))
    named = {lost.rank for lost in found}
    for gap, rank in numbers:
        if rank in named:
            continue
        claim = f"no process carries {gap.removeprefix('rank:').replace(':', ' rank ')}; the other ranks of its group are there"
        at = index.snapshot.at
        found.append(
            Lost(node=gap, rank=rank, pid=None, exit_code=None, evidence=Evidence(source="process-table", claim=claim, at=at))
        )
    return tuple(found)


def _was_rank(member: Member, index: Index, roles: AbstractSet[str], parents: AbstractSet[int]) -> bool:
    """A process with a rank; or a zombie, which has lost its rank, where the ranks' role or their parent says it was one.

    `parents` is empty where no rank is missing.
    """
    if member.ranked:
        return True
    if member.role != "dead":
        return member.role in roles
    process = index.by_pid.get(member.pid)
    return process is not None and process.ppid in parents


def _dead(index: Index, pid: int, rank: Rank) -> Lost:
    process = index.by_pid.get(pid)
    zombie = process is not None and process.state in GONE
    code = process.exit_code if process else None
    how = f" ({_status(code)})" if code is not None else ""
    claim = f"pid {pid} is dead{how} and its parent has not collected it" if zombie else f"pid {pid} is gone{how}"
    excerpt = f"state {process.state}, {process.name}" if process else ""
    evidence = Evidence(source="process-state", claim=claim, excerpt=excerpt, at=index.snapshot.at)
    return Lost(node=node.process(pid), rank=rank, pid=pid, exit_code=code, evidence=evidence)


def _status(code: int) -> str:
    """A wait status (the form of /proc/PID/stat field 52) in words."""
    signal = code & 0x7F
    return f"killed by signal {signal}" if signal else f"exit code {code >> 8}"


def _may_be_a_rank(member: Member, index: Index, server: Server) -> bool:
    """Whether a living process is not known to be anything else than a rank: just started, or what names it was unreadable."""
    process = index.by_pid[member.pid]
    named_by_environment = server.engine == "torch" and member.role == "helper"
    unread = not isinstance(process.cmdline, Ok) or (named_by_environment and not isinstance(process.environ, Ok))
    # Without a command line the kernel's 15-byte name is left, in which the rank is cut off.
    return member.role == "starting" or member.unnumbered or unread


def _gaps(index: Index, server: Server) -> list[tuple[Node, Rank]]:
    """Rank numbers below the highest seen, or below the number of ranks on this host, that no living process carries."""
    alive = [m for m in server.members if index.alive(m.pid)]
    flat = all(not m.rank.pp and not m.rank.dp for m in alive)
    parents = {index.by_pid[m.pid].ppid for m in alive if m.ranked}
    if any(_may_be_a_rank(m, index, server) and index.by_pid[m.pid].ppid in parents for m in alive):
        # A sibling of the ranks without a title yet, or one that could not be read, may be any of the missing numbers.
        return []
    for field, dimension in (("global_", "global"), ("tp", "tp")):
        seen = {c for m in alive if (c := getattr(m.rank, field)) is not None}
        if not seen or not flat:
            continue
        all_here = server.local_size if server.local_size is not None and server.local_size == server.world_size else 0
        size = max(all_here, max(seen) + 1) if min(seen) == 0 or all_here else 0
        return [(node.rank(dimension, r), Rank(**{field: r})) for r in range(size) if r not in seen]
    return []
