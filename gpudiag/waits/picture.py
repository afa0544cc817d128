"""All edges of one observation, and what follows from them: the causes in the order of blame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from functools import cached_property

import msgspec

from gpudiag.engines.roles import FRONT, PATH
from gpudiag.model import node
from gpudiag.model.node import Node
from gpudiag.model.server import Member, Server
from gpudiag.model.snapshot import Observation
from gpudiag.model.wait import Wait
from gpudiag.waits import channels, children, collectives, device, files, flight, gil, kernels, locks, nccl, spin, stores, streams
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.graph import Cause, causes
from gpudiag.waits.motion import Motion

KINDS = (
    locks.edges,
    gil.edges,
    files.edges,
    children.edges,
    kernels.edges,
    nccl.edges,
    flight.edges,
    collectives.edges,
    stores.edges,
    channels.edges,
    spin.edges,
    device.edges,
    streams.edges,
)
"""Earlier kinds know more: a thread that has an edge of one kind gets none of a later kind from the same wait."""


class Picture(Context):
    """The wait-for graph of one observation. What rules look at."""

    def __init__(self, observation: Observation, server: Server) -> None:
        super().__init__(observation, server)
        self.edges: tuple[Edge, ...] = self._collect()

    def _collect(self) -> tuple[Edge, ...]:
        found: list[Edge] = []
        explained: set[Node] = set()
        for kind in KINDS:
            new = [e for e in kind(self) if e.waiter not in explained and not self.index.stopped(node.pid_of(e.waiter) or 0)]
            explained |= {e.waiter for e in new}
            found += new
        found += list(channels.event_edges(self, found))
        return self._without_idle_helpers(tuple({(e.waiter, e.holder, e.wait.kind): e for e in found}.values()))

    def _without_idle_helpers(self, edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        """A pool worker or tool that nobody waits for is owed nothing: what it waits for is work."""
        wanted = {node.pid_of(e.holder) for e in edges if node.pid_of(e.waiter) != node.pid_of(e.holder)}
        idle = {
            m.pid
            for m in self.server.members
            if not m.ranked and m.pid not in wanted and m.role not in PATH and m.role not in FRONT
        }
        return tuple(
            msgspec.structs.replace(e, wait=msgspec.structs.replace(e.wait, need="work")) if node.pid_of(e.waiter) in idle else e
            for e in edges
        )

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What a report shows: waits of main threads, and of whatever stands between them and a cause."""
        shown = {n for cause in self.causes for n in (*cause.nodes, *cause.waiters)}
        return tuple(e.wait for e in self.edges if node.pid_of(e.waiter) == node.tid_of(e.waiter) or e.waiter in shown)

    @cached_property
    def all_causes(self) -> tuple[Cause, ...]:
        """Terminal components over `reply` edges that somebody on the request path waits for, most blamed first."""
        pairs = [(e.waiter, e.holder) for e in self.edges if e.wait.need == "reply"]
        found = causes(pairs, progressing=self._progressing, weights=self._weights)
        return tuple(c for c in found if c.weight > 0)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Those of `all_causes` that anybody is to blame for.

        With no request in flight a chain of waits that ends in a frontend's wait for clients is idleness. With no client
        connected at all, what rests only on 'it did not move' is none either: nobody asked it to.
        """
        if self.demand.state != "none":
            return self.all_causes
        busy = [c for c in self.all_causes if not all(self.waits_for_clients(n) for n in c.nodes)]
        return tuple(c for c in busy if self.demand.kept_open or self._wrong_at_rest(c))

    def waits_for_clients(self, target: Node) -> bool:
        """Whether a node is a process at the server's door (or outside of it) that waits to be asked something."""
        pid = node.pid_of(target)
        if pid is None:
            return False
        member = self.server.member(pid)
        if member is None:
            return not self._wanted(target)
        if member.role not in FRONT:
            return False
        known, call = self.known(pid, pid), self.index.syscall(pid, pid)
        return (known is not None and known.need == "work") or (call is not None and call.name in _AT_THE_DOOR)

    def _wrong_at_rest(self, cause: Cause) -> bool:
        """Whether it is wrong even if nobody asks anything: a lock, a collective, a process that is gone or stopped."""
        return any(self._wanted(n) for n in cause.nodes) or any(
            n.startswith("rank:") or (node.pid_of(n) is not None and node.tid_of(n) is None) for n in cause.nodes
        )

    def _wanted(self, target: Node) -> bool:
        """Whether somebody waits for a node in a way that is no idleness."""
        return any(e.wait.kind in _WRONG_AT_REST for e in self.edges_to(target))

    @cached_property
    def traffic(self) -> bool:
        """Whether bytes went between the ranks, or from a frontend to a client, between the looks (TCP_INFO)."""
        pids = {m.pid for m in self.server.members if m.ranked or m.role in FRONT}
        owned = {inode for inode, who in self.index.holders.items() if any(p in pids for p, _ in who)}
        then = self.before.sockets
        return any(
            (s.bytes_sent or 0) > (before.bytes_sent or 0)
            for inode, s in self.index.sockets.items()
            if inode in owned and s.family == "tcp" and (before := then.get(inode)) is not None
        )

    @cached_property
    def _progressing(self) -> frozenset[Node]:
        nodes = {n for e in self.edges for n in (e.waiter, e.holder)}
        return frozenset(
            n
            for n in nodes
            if (pid := node.pid_of(n)) is not None
            and (tid := node.tid_of(n)) is not None
            and (self.motion(pid, tid) is Motion.MOVING or (pid == tid and bool(nccl.launched(self, pid))))
        )

    @cached_property
    def _weights(self) -> dict[Node, float]:
        """One for every rank's main thread, one for every request; other threads wait, but nobody cares about them alone."""
        weights: dict[Node, float] = {node.thread(m.pid, m.pid): 1.0 for m, _ in self.members() if m.ranked or m.role in PATH}
        if self.demand.state == "pending" and self.demand.frontends:
            share = max(self.demand.requests, 1) / len(self.demand.frontends)
            for pid in self.demand.frontends:
                weights[node.thread(pid, pid)] = share
            # Which thread serves a request is not visible; one that waits for another member of the server does.
            for edge in self.edges:
                if node.pid_of(edge.waiter) in self.demand.frontends and self._serves(edge):
                    weights[edge.waiter] = share
        return weights

    def _serves(self, edge: Edge) -> bool:
        member = self.member_of(edge.holder)
        return member is not None and member.pid != node.pid_of(edge.waiter)

    @cached_property
    def _ends(self) -> tuple[dict[Node, list[Edge]], dict[Node, list[Edge]]]:
        """The edges by holder and by waiter: rules ask for both at every node."""
        into: dict[Node, list[Edge]] = defaultdict(list)
        out: dict[Node, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            into[edge.holder].append(edge)
            out[edge.waiter].append(edge)
        return into, out

    def edges_to(self, target: Node) -> tuple[Edge, ...]:
        return tuple(self._ends[0].get(target, ()))

    def edges_from(self, waiter: Node) -> tuple[Edge, ...]:
        return tuple(self._ends[1].get(waiter, ()))

    def any_motion(self, nodes: Iterable[Node], motions: Container[Motion]) -> bool:
        """Whether one of the nodes is a thread (or a process, by its main thread) that was seen in one of these motions."""
        threads = ((pid, node.tid_of(n) or pid) for n in nodes if (pid := node.pid_of(n)) is not None)
        return any(self.motion(pid, tid) in motions for pid, tid in threads)

    def edges_within(self, cause: Cause) -> tuple[Edge, ...]:
        """The waits that close a cycle; none for a cause that is one node and does not wait for itself."""
        return tuple(e for n in cause.nodes for e in self.edges_from(n) if e.holder in cause.nodes)

    def cause_of(self, target: Node) -> Cause | None:
        """The cause that a node is, or is part of."""
        return next((c for c in self.causes if target in c.nodes), None)

    def member_of(self, target: Node) -> Member | None:
        pid = node.pid_of(target)
        return self.server.member(pid) if pid is not None else None

    def waiting_ranks(self, cause: Cause) -> tuple[Member, ...]:
        """Ranks whose main thread waits for the cause."""
        pids = {node.pid_of(w) for w in cause.waiters}
        return tuple(m for m in self.server.ranks if m.pid in pids and node.thread(m.pid, m.pid) in cause.waiters)


_WRONG_AT_REST = frozenset({"collective", "p2p", "store", "lock", "file-lock", "gil", "device-sync"})
_AT_THE_DOOR = frozenset(
    {"accept", "accept4", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"}
)
