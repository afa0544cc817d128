"""Who is behind in which communicator: edges from the collectives that each rank launched.

NCCL counts what the host enqueued. Healthy ranks run ahead of each other, so only counts that are unequal and moved on
neither side say something. Blind here: collectives replayed from CUDA graphs, custom all-reduce, Send and Recv, symmetric
memory, gloo; see `gpudiag.waits.spin`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudiag.model import node
from gpudiag.model.communicator import COLLECTIVES, Communicator, Nccl
from gpudiag.model.finding import Evidence
from gpudiag.model.node import Node
from gpudiag.model.process import GONE
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation, Snapshot

if TYPE_CHECKING:
    from gpudiag.waits.context import Context, Edge


class End(Struct, frozen=True, kw_only=True):
    """One rank of a communicator: its process, its state in the last look and in the first (None where it was not there)."""

    pid: int
    now: Communicator
    before: Communicator | None
    nccl: Nccl

    @property
    def rank(self) -> int:
        return self.now.rank

    @property
    def unmoved(self) -> bool:
        return self.before is not None and self.before.launched == self.now.launched


class Group(Struct, frozen=True, kw_only=True):
    """One communicator as far as its ranks are on this host and readable."""

    hash: str
    size: int
    ends: tuple[End, ...]

    @property
    def name(self) -> str:
        return f"..{self.hash[-6:]}"

    @property
    def complete(self) -> bool:
        return len(self.ends) == self.size

    @property
    def unmoved(self) -> bool:
        """Whether no rank launched anything between the looks; False where one was not seen twice."""
        return all(end.unmoved for end in self.ends)

    @property
    def equal(self) -> bool:
        return len({end.now.launched for end in self.ends}) == 1

    def end_of(self, pid: int) -> End | None:
        return next((e for e in self.ends if e.pid == pid), None)


class Lead(Struct, frozen=True, kw_only=True):
    """`ahead` launched more collectives of `operation` than `behind`, which owes the next one: number `owed`."""

    group: Group
    ahead: End
    behind: End
    operation: str
    done: int
    owed: int


def groups(observation: Observation) -> tuple[Group, ...]:
    """Communicators of more than one rank, by hash. Processes that died keep no communicator."""
    now = _ends(observation.last)
    before = _ends(observation.first) if observation.has_change else {}
    found: dict[str, list[End]] = defaultdict(list)
    for (pid, hash_), (communicator, nccl) in now.items():
        earlier = before.get((pid, hash_))
        found[hash_].append(End(pid=pid, now=communicator, before=earlier[0] if earlier else None, nccl=nccl))
    return tuple(
        Group(hash=hash_, size=ends[0].now.size, ends=tuple(sorted(ends, key=lambda e: e.rank)))
        for hash_, ends in sorted(found.items())
        if ends[0].now.size > 1
    )


def _ends(snapshot: Snapshot) -> dict[tuple[int, str], tuple[Communicator, Nccl]]:
    return {
        (process.pid, communicator.hash): (communicator, nccl)
        for process in snapshot.processes
        if isinstance(process.nccl, Ok) and process.state not in GONE
        for nccl in process.nccl.value
        if nccl.stable
        for communicator in nccl.communicators
    }


def leads(group: Group) -> tuple[Lead, ...]:
    """Every pair of ranks of which one launched more of an operation. Empty while anything moves."""
    if not group.unmoved:
        return ()
    return tuple(
        Lead(
            group=group,
            ahead=a,
            behind=b,
            operation=COLLECTIVES[kind],
            done=a.now.launched[kind],
            owed=b.now.launched[kind] + 1,
        )
        for a in group.ends
        for b in group.ends
        for kind in range(min(len(COLLECTIVES), len(a.now.launched), len(b.now.launched)))
        if a.now.launched[kind] > b.now.launched[kind]
    )


def source(nccl: Nccl) -> str:
    """The evidence source: the library's memory, a layout of it that was never compared with NCCL's own word, or RAS."""
    if nccl.source == "ras":
        return "nccl-ras"
    return "nccl-memory" if nccl.verified else "nccl-memory-unverified"


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
