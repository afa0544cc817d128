"""Torch's flight recorder in a look: dumps that lie on disk already, or new ones where the ranks were started to give them.

A rank with TORCH_NCCL_DEBUG_INFO_PIPE_FILE reads `<that><rank>.pipe` in its heartbeat thread, also while its main thread
hangs, and then writes `<TORCH_FR_DUMP_TEMP_FILE><rank>`: about 6 s later on a hung rank (torch 2.11, ProcessGroupNCCL.cpp).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gpudiag import engines
from gpudiag.collect.deadline import Guard
from gpudiag.collect.flight_request import DumpsReply, DumpsRequest, PipeReply, PipeRequest, Written
from gpudiag.collect.options import LookOptions
from gpudiag.collect.process_reader import WITHHELD
from gpudiag.model.process import GONE, STOPPED, Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable, value_or
from gpudiag.model.server import Server
from gpudiag.model.snapshot import Gap, Snapshot

if TYPE_CHECKING:
    from gpudiag.collect.flight_recorder import FlightReading

ANSWER_S: Final = 8.0
RECENT_S: Final = 300.0
"""A dump older than this says little about a hang of now: the job may have gone on."""
TOGETHER_S: Final = 60.0
"""Dumps further apart than this are not of one moment: a rank would seem to be missing that only came later."""
_ANALYSIS_S: Final = 10.0
_POLL_S: Final = 0.2
_DUMP: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_ARM: Final = (
    "at the next start of the server: TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
    " TORCH_FR_DUMP_TEMP_FILE=/tmp/fr_dump_ TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_pipe_"
)


class Recorder(NamedTuple):
    """The flight recorder of one rank: the file it dumps to, and the descriptor of its pipe (None without)."""

    root: int
    process: Process
    rank: int
    dump: str
    pipe: int | None


class FlightRecorders:
    """Lives through all looks of an observation. Asks only if the options say so."""

    def __init__(self, options: LookOptions, guard: Guard) -> None:
        self._options = options
        self._guard = guard
        self._asked: dict[int, Recorder] = {}
        self._before: dict[int, Written] = {}
        self._after: dict[int, Written] = {}
        self._due = 0.0
        self._gaps: list[Gap] = []

    def ask(self, snapshot: Snapshot) -> None:
        """Write into the pipe of every rank that has one."""
        if not self._options.flight_recorder or "flight" in self._options.withhold:
            return
        asked = [r for r in recorders(snapshot) if r.pipe is not None]
        self._before = self._written(asked)
        self._due = time.monotonic() + ANSWER_S
        for recorder in asked:
            pid = recorder.process.pid
            if recorder.process.state in STOPPED:
                self._gap(f"pid {pid} is stopped and cannot answer", f"kill -CONT {pid}")
                continue
            (reply,) = self._guard.ask([PipeRequest(pid=pid, fd=recorder.pipe or 0)], PipeReply)
            if error := reply.error:
                self._gap(f"pid {pid} could not be asked: {error}", "")
            else:
                self._asked[pid] = recorder

    def wait(self) -> None:
        """Until every rank that was asked has written its dump in full, or the time for it is over."""
        earlier: Mapping[int, Written] = {}
        while missing := [r for pid, r in self._asked.items() if pid not in self._after]:
            seen = {pid: w for pid, w in self._written(missing).items() if w != self._before.get(pid) and w.size_bytes}
            # A file that is still written to grows.
            self._after.update({pid: w for pid, w in seen.items() if earlier.get(pid) == w})
            earlier = seen
            if time.monotonic() > self._due:
                break
            time.sleep(_POLL_S)
        for recorder in (r for pid, r in self._asked.items() if pid not in self._after):
            self._gap(f"pid {recorder.process.pid} did not write {recorder.dump} within {ANSWER_S:g} s", "")

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The last look with what the dumps say."""
        if "flight" in self._options.withhold:
            return replace(snapshot, flight=WITHHELD)
        reading = self._read_asked() if self._options.flight_recorder else self._read_found(snapshot)
        return replace(snapshot, flight=reading, gaps=(*snapshot.gaps, *self._gaps))

    def _read_asked(self) -> FlightReading:
        answered = [r for pid, r in self._asked.items() if pid in self._after]
        if not answered:
            reason = "no rank that was asked for a dump wrote one" if self._asked else "no rank offers a pipe for dumps"
            return Unavailable(reason=reason, help=_ARM)
        reading = self._analyze(answered)
        return replace(reading, value=replace(reading.value, asked=True)) if isinstance(reading, Ok) else reading

    def _read_found(self, snapshot: Snapshot) -> FlightReading:
        all_ = recorders(snapshot)
        written = self._written(all_)
        of_this_run = [
            r for r in all_ if (w := written.get(r.process.pid)) is not None and w.at_ns / 1e9 >= _started(r.process, snapshot)
        ]
        if not of_this_run:
            return NOT_ASKED
        newest = max(written[r.process.pid].at_ns for r in of_this_run) / 1e9
        if (age_s := snapshot.at - newest) > RECENT_S:
            pid = of_this_run[0].root
            return Unavailable(reason=f"the dumps on disk are {age_s:.0f} s old", help=f"gpudiag attach {pid} --flight-recorder")
        return self._analyze([r for r in of_this_run if newest - written[r.process.pid].at_ns / 1e9 <= TOGETHER_S])

    def _analyze(self, found: list[Recorder]) -> FlightReading:
        from gpudiag.collect.flight_recorder import analyze
        from gpudiag.collect.flight_recorder_load import Dump

        roots = {r.root for r in found}
        if len(roots) > 1:
            reason = f"{len(roots)} servers have dumps, which are compared for one server at a time"
            return Unavailable(reason=reason, help=f"gpudiag attach {min(roots)}")
        return analyze([Dump(r.dump, r.process.pid) for r in found], deadline_s=_ANALYSIS_S)

    def _written(self, found: list[Recorder]) -> dict[int, Written]:
        replies = self._guard.ask([DumpsRequest(pid=r.process.pid, paths=(r.dump,)) for r in found], DumpsReply)
        return {
            r.process.pid: reply.found[r.dump]
            for r, reply in zip(found, replies, strict=True)
            if not isinstance(reply, Failed) and r.dump in reply.found
        }

    def _gap(self, reason: str, help_: str) -> None:
        self._gaps.append(Gap(source="flight", reason=reason, help=help_))


def recorders(snapshot: Snapshot) -> list[Recorder]:
    """Of every living rank whose environment says where its dump goes. All ranks of a server have what one of them has."""
    found: dict[int, Recorder] = {}
    for pid in snapshot.roots:
        server = engines.server_of(snapshot, pid)
        if server is not None:
            found.update({r.process.pid: r for r in _of_server(server, snapshot)})
    return list(found.values())


def _of_server(server: Server, snapshot: Snapshot) -> list[Recorder]:
    processes = [p for m in server.members if (p := snapshot.process(m.pid)) is not None]
    environ: dict[str, str] = {}
    for process in processes:
        # setproctitle writes over the environment of a worker; what it was started with, the others still show.
        if isinstance(process.environ, Ok):
            environ = {**process.environ.value, **environ}
    dump = next((environ[name] for name in _DUMP if environ.get(name)), None)
    if dump is None:
        return []
    found = []
    for member in server.ranks:
        rank_process = snapshot.process(member.pid)
        if rank_process is None or rank_process.state in GONE:
            continue
        pipe, named = _pipe(rank_process, environ.get(_PIPE, "")) or (None, None)
        rank = named if named is not None else server.global_rank(member.rank)
        if rank is not None:
            found.append(Recorder(root=server.root_pid, process=rank_process, rank=rank, dump=f"{dump}{rank}", pipe=pipe))
    return found


def _pipe(process: Process, stem: str) -> tuple[int, int] | None:
    """The descriptor of the rank's own pipe, and the rank that its name tells."""
    name = re.compile(re.escape(stem.rpartition("/")[2]) + r"(\d{1,7})\.pipe")
    for descriptor in value_or(process.fds, ()) if stem else ():
        match = name.fullmatch(descriptor.target.rpartition("/")[2])
        if match is not None and descriptor.kind in ("pipe", "file") and descriptor.readable:
            return descriptor.fd, int(match.group(1))
    return None


def _started(process: Process, snapshot: Snapshot) -> float:
    """Unix time at which a process was started."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + process.start_ticks / snapshot.host.clock_ticks
