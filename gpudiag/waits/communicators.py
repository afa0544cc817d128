"""NCCL communicators of an observation: which processes are ranks of one, what each launched, who leads whom."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from gpudiag.model.communicator import COLLECTIVES, Communicator, Nccl
from gpudiag.model.process import GONE
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation, Snapshot


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
