"""One look: /proc states first, then sockets and locks, stacks, and memory last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from gpudiag.collect import access, family, procfs
from gpudiag.collect.deadline import Guard
from gpudiag.collect.file_locks import of_processes, read_file_locks
from gpudiag.collect.gpu_look import GpuSide
from gpudiag.collect.guard_protocol import (
    FilesReply,
    FilesRequest,
    MemoryReply,
    MemoryRequest,
    PathsReply,
    PathsRequest,
    StateReply,
    StateRequest,
)
from gpudiag.collect.host import own_host
from gpudiag.collect.nccl_state import NcclReading
from gpudiag.collect.network import Network, read_network
from gpudiag.collect.options import LookOptions
from gpudiag.collect.process_reader import WITHHELD, read_full, read_light
from gpudiag.collect.pyspy import StackMode, StackReading, dump_stacks
from gpudiag.collect.ras_look import RasReading, ask_service
from gpudiag.collect.reuse import has_locals, quiet, still_without_communicators, unmoved_stacks, unmoved_uses
from gpudiag.collect.states import has_python, state_request, with_constants, with_state, withheld_state, zombie
from gpudiag.collect.threads import inner_tids
from gpudiag.engines.recognise import COMPILERS
from gpudiag.model.file import FileFact, FileLock
from gpudiag.model.process import GONE, STOPPED, Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable, value_or
from gpudiag.model.snapshot import Gap, Snapshot
from gpudiag.model.stack import PyStack

_REHEARSAL_S: Final = 0.1
"""What one process may take in a rehearsal: a scheduler of SGLang needs half of it."""


class OneLook:
    """Collects one Snapshot. `processes` fills up from pass to pass."""

    def __init__(self, roots: Sequence[int], options: LookOptions, guard: Guard, gpus: GpuSide, earlier: Snapshot | None) -> None:
        self._roots = tuple(roots)
        self._options = options
        self._guard = guard
        self._gpus = gpus
        self._earlier = {p.pid: p for p in earlier.processes} if earlier else {}
        self._full: dict[int, Process] = {}
        self._light: dict[int, Process] = {}
        self._reused: set[int] = set()
        """Pids whose stacks are those of the earlier look."""
        self._lock_table: Ok[tuple[FileLock, ...]] | Unavailable | Failed = WITHHELD
        self._gaps: list[Gap] = []
        self._stopped_s = 0.0

    def take(self) -> Snapshot:
        at, monotonic_s = time.time(), time.monotonic()
        self._gpus.ask()
        self._read_states()
        self._read_communicators()
        network = self._read_network()
        locks = self._read_locks()
        self._read_other_ends(network, locks)
        self._read_stacks()
        said = self._ask_service()
        self._read_memory()
        files = self._read_files()
        if files:
            locks = self._locks_on(files)
        self._read_holders(files, locks.value if isinstance(locks, Ok) else ())
        self._distrust_restarted()
        devices = self._gpus.devices()
        return Snapshot(
            host=own_host(),
            at=at,
            monotonic_s=monotonic_s,
            processes=tuple(self._full.values()) + tuple(self._light.values()),
            roots=self._roots,
            sockets=network.sockets,
            file_locks=locks,
            files=files,
            gpus=devices.gpus,
            xids=devices.xids,
            ras=said,
            gaps=tuple(self._gaps),
            took_s=time.monotonic() - monotonic_s,
            stopped_s=self._stopped_s,
        )

    def rehearse(self, due: float) -> None:
        """Read locks and polled files as the last look will, until `due` (monotonic): the source they are in is parsed then.

        For that the stacks of this look do, though without locals they give no answer.
        """
        if "memory" in self._options.withhold:
            return
        for process in self._alive:
            if time.monotonic() > due - _REHEARSAL_S:
                return
            if isinstance(process.stacks, Ok) and process.python_version is not None and not has_locals(process.stacks.value):
                self._guard.ask([_memory_of(process, process.stacks.value)], MemoryReply)

    @property
    def _alive(self) -> list[Process]:
        return [p for p in self._full.values() if p.state not in GONE]

    def _read_states(self) -> None:
        withhold = self._options.withhold
        for pid in family.descendants(self._roots):
            process = read_full(pid, withhold)
            if process is not None:
                self._full[pid] = zombie(process) if process.state in GONE else process
        alive = self._alive
        replies = self._guard.ask([state_request(p, withhold, self._earlier_of(p)) for p in alive], StateReply)
        for process, reply in zip(alive, replies, strict=True):
            state = with_constants(with_state(process, reply), self._earlier_of(process))
            self._full[process.pid] = withheld_state(state, withhold)

    def _read_communicators(self) -> None:
        found: dict[int, NcclReading] = {}
        asked: list[Process] = []
        for process in self._alive:
            earlier = self._earlier_of(process)
            if earlier is not None and still_without_communicators(earlier, process):
                found[process.pid] = earlier.nccl
            else:
                asked.append(process)
        found.update(self._gpus.communicators(asked, self._guard))
        for pid, nccl in found.items():
            self._full[pid] = replace(self._full[pid], nccl=nccl)

    def _ask_service(self) -> RasReading:
        """After the stacks, which show whether a communicator is being created."""
        said = ask_service(self._alive, always=self._options.ras)
        for pid, nccl in said.states.items():
            self._full[pid] = replace(self._full[pid], nccl=nccl)
        return said.ras

    def _earlier_of(self, process: Process) -> Process | None:
        earlier = self._earlier.get(process.pid)
        return earlier if earlier is not None and earlier.start_ticks == process.start_ticks else None

    def _read_network(self) -> Network:
        if "sockets" in self._options.withhold:
            return Network(WITHHELD, (), frozenset())
        network = read_network(self._alive, self._guard)
        self._gaps.extend(network.gaps)
        return network

    def _read_locks(self) -> Ok[tuple[FileLock, ...]] | Unavailable | Failed:
        self._lock_table = WITHHELD if "locks" in self._options.withhold else read_file_locks()
        return self._locks_on(())

    def _locks_on(self, polled: Sequence[FileFact]) -> Ok[tuple[FileLock, ...]] | Unavailable | Failed:
        table = self._lock_table
        return replace(table, value=of_processes(table.value, self._full.values(), polled)) if isinstance(table, Ok) else table

    def _read_other_ends(self, network: Network, locks: Ok[tuple[FileLock, ...]] | Unavailable | Failed) -> None:
        known = self._full.keys()
        inodes = family.shared_inodes(self._full.values(), network.peer_inodes)
        ends = {end.pid: end.fds for end in family.other_ends(inodes, known)} if inodes else {}
        named = family.lock_holders(locks.value, known) if isinstance(locks, Ok) else frozenset()
        tracers = {p.tracer_pid for p in self._full.values() if p.tracer_pid and p.tracer_pid not in known}
        at = time.time()
        found = [p for pid in sorted(ends.keys() | named | tracers) if (p := read_light(pid)) is not None]
        self._keep_lightly([replace(p, fds=Ok(value=ends[p.pid], at=at)) if p.pid in ends else p for p in found])

    def _read_holders(self, polled: Sequence[FileFact], locks: Sequence[FileLock]) -> None:
        """Who else has what is waited for here, and the compilers below them: servers share caches and their locks."""
        wanted = {lock.id for lock in locks if lock.blocked and lock.pid in self._full}
        files = {(fact.device, fact.inode) for fact in polled}
        takers = {
            p for lock in locks if lock.id in wanted or (lock.device, lock.inode) in files for p in (lock.pid, *lock.holders)
        }
        outside = {p for p in takers.union(*(fact.openers for fact in polled)) if p > 0 and p not in self._full}
        below = family.descendants(sorted(outside)) if outside else []
        found = {pid: p for pid in below if pid not in self._full and (p := read_light(pid)) is not None}
        kept = set(outside)
        for process in found.values():
            above = process if process.name in COMPILERS else None
            while above is not None and above.pid not in kept:
                kept.add(above.pid)
                above = found.get(above.ppid)
        self._keep_lightly([p for pid, p in found.items() if pid in kept and pid not in self._light])

    def _keep_lightly(self, processes: Sequence[Process]) -> None:
        self._light.update({p.pid: p for p in processes})
        asked = [p for p in processes if p.state not in GONE]
        replies = self._guard.ask([StateRequest(pid=p.pid, want=("cmdline",)) for p in asked], StateReply)
        for process, reply in zip(asked, replies, strict=True):
            self._light[process.pid] = with_state(process, reply)

    def _read_stacks(self) -> None:
        mode, withhold = self._options.stacks, self._options.withhold
        if mode == "none" or "stacks" in withhold:
            reason = WITHHELD if "stacks" in withhold else NOT_ASKED
            self._full.update({p.pid: replace(p, stacks=reason) for p in self._alive})
            return
        targets: list[Process] = []
        for process in self._alive:
            if not isinstance(process.libraries, Ok):
                # Whatever keeps its memory map from being read keeps py-spy from it as well, or hangs it.
                self._full[process.pid] = _without_stacks(process, process.libraries)
            elif not has_python(process):
                nothing = Unavailable(reason=f"process {process.pid} runs no Python", help="")
                self._full[process.pid] = _without_stacks(process, nothing)
            elif (unmoved := self._unmoved(process)) is not None:
                self._full[process.pid] = replace(process, stacks=Ok(value=unmoved, at=time.time()))
                self._reused.add(process.pid)
            else:
                targets.append(process)
        # A process that is stopped already stands still, and cannot be paused.
        stopped = [p for p in targets if p.state in STOPPED]
        self._dump(stopped, "nonblocking")
        self._dump([p for p in targets if p not in stopped], mode)

    def _dump(self, targets: Sequence[Process], mode: StackMode) -> None:
        dumps = dump_stacks(
            [p.pid for p in targets],
            mode=mode,
            with_locals=frozenset(p.pid for p in targets if self._options.locals or quiet(p)),
            deadline_s=self._options.deadline_s,
            existing=self._existing,
        )
        self._stopped_s += dumps.stopped_s
        self._gaps.extend(_torn(pid, mode, why) for pid, why in dumps.torn.items())
        for pid, stacks in dumps.stacks.items():
            self._full[pid] = replace(self._full[pid], stacks=_seen_from_here(self._full[pid], stacks))

    def _unmoved(self, process: Process) -> tuple[PyStack, ...] | None:
        earlier = self._earlier_of(process)
        if earlier is None or self._options.stacks != "nonblocking":
            return None
        return unmoved_stacks(earlier, process, need_locals=self._options.locals)

    def _existing(self, pid: int, paths: AbstractSet[str]) -> AbstractSet[str]:
        (reply,) = self._guard.ask([PathsRequest(pid=pid, paths=frozenset(paths))], PathsReply)
        return frozenset() if isinstance(reply, Failed) else reply.existing

    def _read_memory(self) -> None:
        if "memory" in self._options.withhold:
            self._full.update(
                {
                    p.pid: replace(p, futexes=WITHHELD, polls=WITHHELD, sleeps=WITHHELD, lock_uses=WITHHELD, file_polls=WITHHELD)
                    for p in self._alive
                }
            )
            return
        alive = self._alive
        replies = self._guard.ask([self._memory_request(p) for p in alive], MemoryReply)
        for process, reply in zip(alive, replies, strict=True):
            self._full[process.pid] = _with_memory(process, reply, self._known_uses(process))

    def _known_uses(self, process: Process) -> Process | None:
        """The process in the earlier look, if what its frames did with locks and files then is what they do now."""
        earlier = self._earlier_of(process) if process.pid in self._reused else None
        return earlier if earlier is not None and unmoved_uses(earlier, process) else None

    def _memory_request(self, process: Process) -> MemoryRequest:
        """With the stacks where lock uses are wanted now, or may still be true in the next look: then there is less to do."""
        wanted = (
            isinstance(process.stacks, Ok)
            and process.python_version is not None
            and (self._options.locals or has_locals(process.stacks.value))
            and self._known_uses(process) is None
        )
        return _memory_of(process, process.stacks.value if wanted and isinstance(process.stacks, Ok) else None)

    def _read_files(self) -> tuple[FileFact, ...]:
        requests = [
            FilesRequest(pid=p.pid, paths=tuple({poll.path for poll in p.file_polls.value}))
            for p in self._alive
            if isinstance(p.file_polls, Ok) and p.file_polls.value
        ]
        facts: dict[tuple[str, str | None, int | None], FileFact] = {}
        for reply in self._guard.ask(requests, FilesReply):
            for fact in reply.files if isinstance(reply, FilesReply) else ():
                facts.setdefault((fact.path, fact.device, fact.inode), fact)
        return tuple(facts.values())

    def _distrust_restarted(self) -> None:
        """A pid that now belongs to another process: what was read through the pid may be of either."""
        for process in self._alive:
            try:
                same = procfs.read_stat(process.pid).start_ticks == process.start_ticks
            except OSError:
                continue
            if not same:
                reason = f"pid {process.pid} was reused by a new process during the look"
                restarted = Unavailable(reason=reason, help="gpudiag attach")
                self._full[process.pid] = replace(
                    process,
                    stacks=restarted,
                    futexes=restarted,
                    polls=restarted,
                    sleeps=restarted,
                    lock_uses=restarted,
                    file_polls=restarted,
                )


def _memory_of(process: Process, stacks: tuple[PyStack, ...] | None) -> MemoryRequest:
    return MemoryRequest(
        pid=process.pid,
        syscalls=value_or(process.syscalls, {}),
        tids=frozenset(t.tid for t in process.threads),
        watches={fd.fd: fd.watches for fd in value_or(process.fds, ()) if fd.watches},
        python_version=process.python_version,
        stacks=stacks,
    )


def _without_stacks(process: Process, reason: Unavailable | Failed) -> Process:
    return replace(process, stacks=reason, lock_uses=reason, file_polls=reason)


def _seen_from_here(process: Process, stacks: StackReading) -> StackReading:
    """The stacks with thread ids of the observer's pid namespace; Python knows those of its own."""
    if not isinstance(stacks, Ok) or len(process.ns_pids) <= 1:
        return stacks
    try:
        outer = inner_tids(process.pid, (t.tid for t in process.threads))
    except OSError:
        return access.gone(process.pid)
    return replace(stacks, value=tuple(replace(s, tid=outer[s.tid]) for s in stacks.value if s.tid in outer))


def _torn(pid: int, mode: StackMode, why: Unavailable | Failed) -> Gap:
    """What --pause or --native could not give for a process whose stacks are there all the same."""
    source = f"{mode} stacks"
    reason = f"process {pid} was read without stopping it: "
    if isinstance(why, Failed):
        return Gap(source=source, reason=reason + why.error, help=f"gpudiag attach {pid} --{mode}")
    return Gap(source=source, reason=reason + why.reason, help=why.help)


def _with_memory(process: Process, reply: MemoryReply | Failed, known: Process | None) -> Process:
    if isinstance(reply, Failed):
        return replace(process, futexes=reply, polls=reply, sleeps=reply, lock_uses=reply, file_polls=reply)
    unseen = None if isinstance(process.syscalls, Ok) else process.syscalls
    stackless = None if isinstance(process.stacks, Ok) else process.stacks
    frames = known or reply
    return replace(
        process,
        futexes=unseen or reply.futexes,
        polls=unseen or reply.polls,
        sleeps=unseen or reply.sleeps,
        lock_uses=stackless or frames.lock_uses,
        file_polls=stackless or frames.file_polls,
    )
