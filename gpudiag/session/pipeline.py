"""From a server to its report: the steps that attach, demo, explain and a supervised start share."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from gpudiag import __version__
from gpudiag.errors import NoTargetError
from gpudiag.model.log import ServerLog
from gpudiag.model.process import GONE, Process
from gpudiag.model.reading import Ok, value_or
from gpudiag.model.report import Report
from gpudiag.model.server import Server
from gpudiag.model.snapshot import Observation, Snapshot

if TYPE_CHECKING:
    from gpudiag.collect.options import LookOptions
    from gpudiag.logs.live import Stream


_RULES_S: Final = 0.2
"""What it may take to load the rules, of which there are many modules."""


class Readers:
    """The children that read for one diagnosis, started before they are needed: a fresh interpreter takes a tenth of a second."""

    def __enter__(self) -> Self:
        from gpudiag.collect.deadline import Guard

        self._stack = contextlib.ExitStack()
        # Whoever asks says how patient it is.
        self.guard = self._stack.enter_context(Guard(0.0))
        from gpudiag.logs.live import LogReader

        self.logs = LogReader()
        self._stack.callback(self.logs.close)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()


def scan(readers: Readers | None = None) -> Snapshot:
    """All processes of the host with their command lines."""
    from gpudiag.collect import look

    return look.scan(readers.guard if readers is not None else None)


def recognise(snapshot: Snapshot) -> tuple[Server, ...]:
    from gpudiag import engines

    return engines.recognise(snapshot)


def server_with(around: Snapshot, pid: int) -> Server | None:
    """The server that this process belongs to; None if there is no such process."""
    from gpudiag import engines

    return engines.server_of(around, pid)


def observe(
    servers: Sequence[Server],
    around: Snapshot,
    options: LookOptions,
    *,
    samples: int,
    interval_s: float,
    confirm: bool,
    readers: Readers | None = None,
) -> Observation:
    """Look at these servers `samples` times. What goes away meanwhile is missing from the later looks."""
    from gpudiag.collect import look

    def meanwhile(first: Snapshot, left_s: float) -> None:
        """What comes after the looks is made ready in the time between them."""
        if readers is not None and any(_log_files(p) for p in first.processes):
            with contextlib.suppress(OSError):
                readers.logs.start()
        if left_s > _RULES_S:
            from gpudiag.rules import diagnose, log_beside  # noqa: F401

    roots = tuple(pid for server in servers for pid in tops(server, around))
    guard = readers.guard if readers is not None else None
    return look.observe(roots, options, samples=samples, interval_s=interval_s, confirm=confirm, guard=guard, meanwhile=meanwhile)


def tops(server: Server, around: Snapshot) -> tuple[int, ...]:
    """The members whose parent is none: the root, and beside it workers that were orphaned."""
    members = {m.pid for m in server.members}
    parents = {p.pid: p.ppid for p in around.processes}
    others = [m.pid for m in server.members if m.pid != server.root_pid and parents.get(m.pid) not in members]
    return (server.root_pid, *others)


def servers_of(observation: Observation) -> tuple[Server, ...]:
    """The servers that were looked at, each as the look shows it that saw most of its ranks; of equal looks the first.

    It uses nothing but the observation, so that a recording yields the servers that the live run had.
    """
    from gpudiag import engines

    best: dict[int, Server] = {}
    for snapshot in observation.snapshots:
        for server in engines.servers_of(snapshot, snapshot.roots):
            if server is None:
                continue
            known = best.get(server.root_pid)
            if known is None or (len(server.ranks), len(server.members)) > (len(known.ranks), len(known.members)):
                best[server.root_pid] = server
    return tuple(best.values())


def logs_of(observation: Observation, readers: Readers | None = None) -> tuple[ServerLog, ...]:
    """What each of these servers has logged, where its output goes to files. They are read now."""
    from gpudiag.logs.live import LogReader

    reader = readers.logs if readers is not None else LogReader()
    processes = {p.pid: p for snapshot in observation.snapshots for p in snapshot.processes}
    found = []
    for server in servers_of(observation):
        pids = [pid for pid in dict.fromkeys((server.root_pid, *(m.pid for m in server.members))) if pid in processes]
        if not any(isinstance(processes[pid].fds, Ok) for pid in pids):
            found.append(ServerLog(root_pid=server.root_pid, reason="where it goes is not known: open files could not be read"))
            continue
        found.append(reader.read(server.root_pid, [stream for pid in pids for stream in _log_files(processes[pid])]))
    return tuple(found)


def _log_files(process: Process) -> list[Stream]:
    """The files that its standard output and error go to."""
    from gpudiag.logs.live import Stream

    return [
        Stream(pid=process.pid, fd=descriptor.fd, inode=descriptor.inode, name=descriptor.target)
        for descriptor in value_or(process.fds, ())
        if descriptor.fd in (1, 2) and descriptor.kind == "file" and descriptor.inode is not None
    ]


def reports_of(
    observation: Observation, *, command: str, wall_s: float | None = None, logs: Sequence[ServerLog] = ()
) -> list[Report]:
    """One report per server, with what its log in `logs` adds; `wall_s` is what looking took.

    A server that ended meanwhile and left nothing to say is left out: what a rank that died leaves behind, a compiler's
    worker that ends a moment later, counts as one. Raises NoTargetError if there was no other.
    """
    from gpudiag.rules import diagnose
    from gpudiag.rules.log_beside import with_log

    servers = servers_of(observation)
    if not servers:
        gone = ", ".join(str(pid) for pid in observation.last.roots) or "none given"
        raise NoTargetError(f"the server was gone before it could be looked at (pid {gone})", help="gpudiag attach")
    known = {log.root_pid: log for log in logs}
    reports: list[Report] = []
    over: list[int] = []
    for server in servers:
        report = diagnose.diagnose(observation, server, command=command, version=__version__, wall_s=wall_s)
        log = known.get(server.root_pid)
        report = report if log is None else with_log(report, log, at=observation.last.at)
        if report.verdict.status == "insufficient" and ended(observation, server):
            over.append(server.root_pid)
        else:
            reports.append(report)
    if not reports:
        raise NoTargetError(
            f"process {over[0]} ended, or was replaced, while it was looked at, and left nothing that says why",
            help="look for its last words: gpudiag explain LOG, dmesg -T",
        )
    return reports


def ended(observation: Observation, server: Server) -> bool:
    """Whether no process of the server was still there, as the same process, in the last look."""
    last = {(p.pid, p.start_ticks) for p in observation.last.processes if p.state not in GONE}
    ours = {m.pid for m in server.members}
    return not any((p.pid, p.start_ticks) in last for p in observation.first.processes if p.pid in ours)
