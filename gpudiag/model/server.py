"""A recognised server: which processes belong to it and what each one is for."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

Engine = Literal["sglang", "vllm", "torch", "demo", "unknown"]


class Rank(Struct, frozen=True, kw_only=True, rename={"global_": "global"}):
    """Coordinates of a rank; a dimension that does not apply or is not known is None."""

    global_: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None


class Member(Struct, frozen=True, kw_only=True):
    """One process of a server. `role` is the engine's word for it (worker, scheduler, engine-core, frontend ...).

    `unnumbered` is a rank whose number nobody knows yet: it has joined no group, and its title says no more than its role.
    """

    pid: int
    role: str
    rank: Rank = Rank()
    unnumbered: bool = False

    @property
    def ranked(self) -> bool:
        """Whether the process is one rank of a collective group."""
        rank = self.rank
        return self.unnumbered or any(c is not None for c in (rank.global_, rank.tp, rank.pp, rank.dp, rank.ep))


class Server(Struct, frozen=True, kw_only=True, dict=True):
    """One server on one host.

    `world_size` is the number of ranks it should have on all hosts together, `local_size` on this one; None if nothing
    says so.
    """

    engine: Engine
    root_pid: int
    members: tuple[Member, ...]
    version: str | None = None
    world_size: int | None = None
    local_size: int | None = None
    listen: tuple[str, ...] = ()

    def member(self, pid: int) -> Member | None:
        return self._by_pid.get(pid)

    @cached_property
    def _by_pid(self) -> dict[int, Member]:
        return {m.pid: m for m in reversed(self.members)}

    def global_rank(self, rank: Rank) -> int | None:
        """The global rank; from coordinates where they determine it (tensor parallel innermost, then pipeline, then data)."""
        if rank.global_ is not None:
            return rank.global_
        if rank.tp is None and rank.pp is None:
            return rank.dp
        tp_size, pp_size = self._sizes
        return ((rank.dp or 0) * pp_size + (rank.pp or 0)) * tp_size + (rank.tp or 0)

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """Tensor and pipeline parallel size, as far as members are there."""
        known = [m.rank for m in self.members if m.ranked]
        tp_size = 1 + max((r.tp for r in known if r.tp is not None), default=0)
        pp_size = 1 + max((r.pp for r in known if r.pp is not None), default=0)
        return tp_size, pp_size

    @cached_property
    def ranks(self) -> tuple[Member, ...]:
        """Members that are ranks, in rank order."""
        ranked = [m for m in self.members if m.ranked]
        return tuple(sorted(ranked, key=lambda m: _order(m.rank)))


def _order(rank: Rank) -> tuple[int, ...]:
    return tuple(-1 if c is None else c for c in (rank.global_, rank.dp, rank.pp, rank.tp, rank.ep))
