"""The processes of a server that we started: who is there, what each is for, who ended and how.

It reads one stat file a process and a look, which can wait for nobody; titles, which can, come through the guarded child
and only while a process has no role yet.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from gpudiag import engines
from gpudiag.collect import procfs
from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import StateReply, StateRequest
from gpudiag.collect.host import own_host
from gpudiag.collect.process_reader import read_light
from gpudiag.engines.roles import FRONT, PATH
from gpudiag.launch.kernel import open_pidfd
from gpudiag.model.process import GONE, STOPPED
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable
from gpudiag.model.server import Member, Rank
from gpudiag.model.snapshot import Snapshot

UNNAMED: Final = frozenset({"", "starting", "root", "helper"})
"""Roles of processes that may get a title later."""
_NAMING_LOOKS: Final = 10
"""So often a process is asked for its title at every look; later only now and then, since helpers never get one."""
_MOST_TRACKED: Final = 4096

Reading: TypeAlias = Ok[tuple[str, ...]] | Unavailable | Failed


@dataclass(kw_only=True)
class Tracked:
    """One process of the server. Ticks are clock ticks; `status` is as os.waitstatus_to_exitcode gives it, None if not known."""

    pid: int
    start_ticks: int
    state: str = "?"
    ppid: int = 0
    cpu_ticks: int = 0
    rss_bytes: int = 0
    major_faults: int = 0
    role: str = ""
    rank: Rank = field(default_factory=Rank)
    title: str = ""
    pidfd: int | None = None
    ended: bool = False
    status: int | None = None
    asked: int = 0
    cmdline: Reading = NOT_ASKED

    @property
    def main(self) -> bool:
        """Whether the server cannot do without it: a rank, or a process that every request passes."""
        return self.rank != Rank() or self.role in FRONT or self.role in PATH

    @property
    def stopped(self) -> bool:
        return self.state in STOPPED

    @property
    def name(self) -> str:
        """'VLLM::Worker_TP1 (pid 42)'."""
        word = (self.title.split(" ", 1)[0] if "::" in self.title else self.role) or "process"
        return f"{word} (pid {self.pid})"

    def take(self, stat: procfs.Stat) -> None:
        self.state, self.ppid = stat.state, stat.ppid
        self.cpu_ticks = max(self.cpu_ticks, stat.cpu_ticks)
        self.rss_bytes, self.major_faults = stat.rss_bytes, stat.major_faults
        if stat.state == "Z" and stat.exit_code:
            self.status = os.waitstatus_to_exitcode(stat.exit_code)

    def named_as(self, member: Member, title: str) -> None:
        self.role, self.rank, self.title = member.role, member.rank, title


class Tree:
    """All processes below `root`, and those that lost their parent and came to us."""

    def __init__(self, root: int, guard: Guard) -> None:
        self.root = root
        self.all: dict[int, Tracked] = {}
        self.births = 0
        self._guard = guard
        self._strangers: set[int] = set()
        self._self = os.getpid()
        self._group = os.getpgrp()
        self.look()

    @property
    def alive(self) -> list[Tracked]:
        return [t for t in self.all.values() if not t.ended]

    @property
    def tops(self) -> tuple[int, ...]:
        """Pids of those alive whose parent is none of them: the root, and orphans."""
        inside = {t.pid for t in self.alive}
        return tuple(t.pid for t in self.alive if t.ppid not in inside)

    def pidfds(self) -> Iterator[tuple[int, Tracked]]:
        return ((t.pidfd, t) for t in self.all.values() if t.pidfd is not None)

    def look(self) -> list[Tracked]:
        """Read everything anew; the processes that were seen to have ended since the last look."""
        present = set(procfs.pids())
        self._strangers &= present
        gone = [self._end(tracked) for tracked in self.alive if self._has_ended(tracked, present)]
        self._find_new(present)
        self._reap_strays()
        return gone

    def name_members(self, *, again: bool = False) -> None:
        """Give roles to those that have none yet; with `again` to all, since a worker learns its rank after its role."""
        if unknown := [t for t in self.alive if again or (t.role in UNNAMED and t.asked < _NAMING_LOOKS)]:
            self._ask_titles(unknown)
            self._assign_roles()

    def ended(self, tracked: Tracked) -> bool:
        """Whether a process whose pidfd became readable has ended; it is counted out then."""
        if tracked.ended:
            return False
        with contextlib.suppress(OSError):
            tracked.take(procfs.read_stat(tracked.pid))
        if tracked.pid in self.all and (tracked.state in GONE or not os.path.exists(f"/proc/{tracked.pid}")):
            self._end(tracked)
            return True
        return False

    def _has_ended(self, tracked: Tracked, present: set[int]) -> bool:
        if tracked.pid not in present:
            return True
        try:
            stat = procfs.read_stat(tracked.pid)
        except (OSError, ValueError):
            return True
        if stat.start_ticks != tracked.start_ticks:
            return True
        tracked.take(stat)
        return stat.state in GONE

    def _end(self, tracked: Tracked) -> Tracked:
        tracked.ended = True
        if tracked.pidfd is not None:
            os.close(tracked.pidfd)
            tracked.pidfd = None
        # Only what is our child may be collected by us, and only our waiting tells its status for certain.
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(tracked.pid, os.WNOHANG)
            if pid == tracked.pid:
                tracked.status = os.waitstatus_to_exitcode(status)
        return tracked

    def _find_new(self, present: set[int]) -> None:
        unknown = sorted(present - self._strangers - {t.pid for t in self.alive} - {self._self})
        stats = {}
        for pid in unknown:
            with contextlib.suppress(OSError, ValueError):
                stats[pid] = procfs.read_stat(pid)
        ours = {t.pid for t in self.alive}
        found = True
        while found:
            found = False
            for pid, stat in list(stats.items()):
                if pid == self.root or stat.ppid in ours or (stat.ppid == self._self and stat.pgid != self._group):
                    ours.add(pid)
                    self._add(stats.pop(pid))
                    found = True
        # A process whose parent is not there any more is about to get another one; it is looked at again.
        self._strangers |= {pid for pid, stat in stats.items() if stat.ppid in present or stat.ppid == 0}

    def _add(self, stat: procfs.Stat) -> None:
        if len(self.all) >= _MOST_TRACKED:
            self.all = {pid: t for pid, t in self.all.items() if not t.ended or t.main}
        tracked = Tracked(pid=stat.pid, start_ticks=stat.start_ticks)
        tracked.take(stat)
        tracked.pidfd = open_pidfd(stat.pid) if stat.state not in GONE else None
        self.all[stat.pid] = tracked
        self.births += 1

    def _reap_strays(self) -> None:
        """Collect orphans that ended before anybody saw them."""
        for tracked in self.alive:
            if tracked.state == "Z" and tracked.ppid == self._self:
                self._end(tracked)

    def _ask_titles(self, unknown: list[Tracked]) -> None:
        replies = self._guard.ask([StateRequest(pid=t.pid, want=("cmdline",)) for t in unknown], StateReply)
        for tracked, reply in zip(unknown, replies, strict=True):
            tracked.asked += 1
            if isinstance(reply, StateReply) and isinstance(reply.cmdline, Ok):
                tracked.cmdline = reply.cmdline

    def _assign_roles(self) -> None:
        lights = ((t, read_light(t.pid)) for t in self.alive)
        processes = {t.pid: msgspec.structs.replace(p, cmdline=t.cmdline) for t, p in lights if p is not None}
        snapshot = Snapshot(host=own_host(), at=0.0, monotonic_s=0.0, processes=tuple(processes.values()))
        for server in engines.servers_of(snapshot, self.tops):
            for member in server.members if server is not None else ():
                tracked = self.all.get(member.pid)
                if tracked is not None and not self._is_copy(tracked):
                    tracked.named_as(member, processes[member.pid].title)

    def _is_copy(self, tracked: Tracked) -> bool:
        """Whether it only looks like its parent: a child has the parent's title until it executes its own program."""
        parent = self.all.get(tracked.ppid)
        return parent is not None and bool(words(tracked)) and words(parent) == words(tracked)


def words(tracked: Tracked) -> tuple[str, ...]:
    """The command line, as far as it was asked for and could be read."""
    return tracked.cmdline.value if isinstance(tracked.cmdline, Ok) else ()


def send(pids: Iterable[Tracked], number: signal.Signals) -> None:
    """Signal processes that may be gone already. A pidfd cannot hit another process that got the same number."""
    for tracked in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if tracked.pidfd is not None:
                signal.pidfd_send_signal(tracked.pidfd, number)
            else:
                os.kill(tracked.pid, number)
