"""Everything the kinds of waits need to know, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, Literal

from msgspec import Struct

from gpudiag.engines import wait_frames
from gpudiag.engines.frames import Known, known_wait
from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.metrics import TokenCounts
from gpudiag.model.node import Node
from gpudiag.model.process import GONE, Process, Thread
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member, Server
from gpudiag.model.snapshot import Observation
from gpudiag.model.stack import Frame, PyStack
from gpudiag.model.wait import Need, Wait, WaitKind
from gpudiag.waits.communicators import Group, groups
from gpudiag.waits.demand import Demand, demand
from gpudiag.waits.gpus import Device, devices
from gpudiag.waits.index import Index
from gpudiag.waits.lost import Lost, lost
from gpudiag.waits.motion import Motion, Motions

Mode = Literal["read", "write", "acquire", "poll", "child", "arrive", "event"]

LONG_LOOKS: Final = 3
LONG_SPAN_S: Final = 5.0


class Edge(Struct, frozen=True, kw_only=True):
    """A wait and the way it is waited: what a rule needs to know beyond the report."""

    wait: Wait
    mode: Mode

    @property
    def waiter(self) -> Node:
        return self.wait.waiter

    @property
    def holder(self) -> Node:
        return self.wait.holder


class Context:
    """One observation of one server, with its look-ups."""

    def __init__(self, observation: Observation, server: Server) -> None:
        self.observation = observation
        self.server = server
        self.index = Index(observation.last)
        self.before = Index(observation.first)
        self.motions = Motions(observation)
        self.table = wait_frames(server.engine)
        self._known: dict[tuple[int, int], Known | None] = {}

    @cached_property
    def demand(self) -> Demand:
        """What was in flight in the last look; a request that came only after the first look is still pending."""
        return demand(self.index, self.server)

    @cached_property
    def lost(self) -> tuple[Lost, ...]:
        """Ranks without a living process."""
        return lost(self.index, self.server)

    @cached_property
    def devices(self) -> dict[int, Device]:
        """The GPU of each process, by pid, and what it does."""
        return devices(self.observation)

    @cached_property
    def communicators(self) -> tuple[Group, ...]:
        """NCCL communicators of the processes that were looked at."""
        return groups(self.observation)

    @property
    def tokens(self) -> TokenCounts | None:
        """What the server's own counters said after the last look; None where it was not asked or did not say."""
        reading = self.observation.last.tokens.get(self.server.root_pid)
        return reading.value if isinstance(reading, Ok) else None

    @property
    def generates(self) -> TokenCounts | None:
        """The same where they moved: some replica of the server reads or generates tokens."""
        return self.tokens if self.tokens is not None and self.tokens.moved else None

    @property
    def at(self) -> float:
        return self.observation.last.at

    @property
    def long_look(self) -> bool:
        """Whether 'did not move' was watched for long enough to mean more than a moment's rest."""
        return len(self.observation.snapshots) >= LONG_LOOKS and self.observation.span_s >= LONG_SPAN_S

    @property
    def looks_over(self) -> str:
        """`3 looks over 6.0 s`."""
        return f"{len(self.observation.snapshots)} looks over {self.observation.span_s:.1f} s"

    def members(self) -> Iterator[tuple[Member, Process]]:
        """Members that are still there, dead ones left out."""
        for member in self.server.members:
            process = self.index.by_pid.get(member.pid)
            if process is not None and process.state not in GONE:
                yield member, process

    def threads(self) -> Iterator[tuple[Member, Process, Thread]]:
        for member, process in self.members():
            for thread in process.threads:
                yield member, process, thread

    def motion(self, pid: int, tid: int) -> Motion:
        return self.motions.of(pid, tid)

    def stack(self, pid: int, tid: int) -> PyStack | None:
        process = self.index.by_pid.get(pid)
        return process.stack_of(tid) if process else None

    def known(self, pid: int, tid: int) -> Known | None:
        """What the engine's table says about where a thread stands."""
        key = (pid, tid)
        if key not in self._known:
            stack = self.stack(pid, tid)
            self._known[key] = known_wait(stack, self.table) if stack else None
        return self._known[key]

    def held_still(self, pid: int, tid: int) -> bool:
        """One single wait through all looks, or, with one look only, nothing that says otherwise."""
        return self.motion(pid, tid) in (Motion.FROZEN, Motion.UNKNOWN)

    def still_evidence(self, pid: int, tid: int) -> Evidence | None:
        """What the looks say about a thread that did not move. None with one look, or if it did."""
        motion = self.motion(pid, tid)
        if motion not in (Motion.FROZEN, Motion.POLLING, Motion.SPINNING):
            return None
        claim = {
            Motion.FROZEN: "did not run at all",
            Motion.POLLING: "woke up now and then but stayed at the same line",
            Motion.SPINNING: "used the processor but stayed at the same line",
        }[motion]
        source = "long-look" if self.long_look else "two-looks"
        return Evidence(source=source, claim=f"thread {tid} {claim} in {self.looks_over}", at=self.at)

    def stack_evidence(self, pid: int, tid: int, frame: Frame, claim: str) -> Evidence:
        return Evidence(source="python-stack", claim=claim, excerpt=f"pid {pid} tid {tid}: {frame.where}", at=self.at)

    def edge(
        self, waiter: tuple[int, int], holder: Node, kind: WaitKind, mode: Mode, *evidence: Evidence, need: Need = "reply"
    ) -> Edge:
        """An edge out of a thread, given as (pid, tid)."""
        return self.node_edge(node.thread(*waiter), holder, kind, mode, *evidence, need=need)

    def node_edge(self, waiter: Node, holder: Node, kind: WaitKind, mode: Mode, *evidence: Evidence, need: Need) -> Edge:
        """An edge out of any node, also one that is no thread: a kernel on a GPU."""
        return Edge(wait=Wait(waiter=waiter, holder=holder, kind=kind, need=need, evidence=evidence), mode=mode)
