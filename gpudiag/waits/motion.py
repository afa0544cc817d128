"""Did a thread move between the looks, and how.

Progress and activity are told apart: a thread that ran may have woken up only to wait again.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

from gpudiag.model.process import GONE, STOPPED, Process, Thread
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation, Snapshot

SPIN_SHARE = 0.2
"""Share of the time above which a thread that wants a processor counts as busy: ten times what a 50 ms polling loop needs."""

STARVED_SHARE = 0.03
"""The least of that share that even a busy thread on a crowded machine gets: six times what such a loop runs."""


class Motion(Enum):
    """What a thread did over the whole observation."""

    GONE = "gone"
    STOPPED = "stopped"
    FROZEN = "frozen"
    """Never ran, inside the same system call: one single wait."""
    POLLING = "polling"
    """Same frames in every look, a little processor time: a loop that sleeps, or many short waits at one place."""
    SPINNING = "spinning"
    """Same frames in every look, much processor time."""
    MOVING = "moving"
    """Other frames, or another system call."""
    UNKNOWN = "unknown"
    """One look, or nothing to compare."""


BUSY: Final = frozenset({Motion.MOVING, Motion.SPINNING})
"""It uses the processor, or gets on: not asleep in one wait."""
AWAKE: Final = BUSY | {Motion.POLLING}
"""It ran at least now and then."""


class Motions:
    """Motion of any thread of an observation, computed on demand."""

    def __init__(self, observation: Observation) -> None:
        self._looks = observation.snapshots
        self._span_s = observation.span_s
        self._processes = [{p.pid: p for p in s.processes} for s in self._looks]
        self.of = lru_cache(maxsize=None)(self._of)

    def share(self, pid: int, tid: int) -> float:
        """Part of the time between the first and the last look for which a thread ran or was ready to; 0 if unknown."""
        pairs = []
        for processes in (self._processes[0], self._processes[-1]):
            process = processes.get(pid)
            thread = next((t for t in process.threads if t.tid == tid), None) if process else None
            if process is None or thread is None:
                return 0.0
            pairs.append((process, thread))
        ran = _ran(pairs, self._looks[-1])
        return (ran + _ready(pairs)) / self._span_s if ran is not None and self._span_s > 0 else 0.0

    def _of(self, pid: int, tid: int) -> Motion:
        last = self._processes[-1].get(pid)
        if last is None or last.state in GONE:
            return Motion.GONE
        if last.state in STOPPED:
            return Motion.STOPPED
        if len(self._looks) < 2:
            return Motion.UNKNOWN
        pairs: list[tuple[Process, Thread]] = []
        for processes in self._processes:
            process = processes.get(pid)
            thread = next((t for t in process.threads if t.tid == tid), None) if process else None
            if process is None or thread is None or process.start_ticks != last.start_ticks:
                return Motion.UNKNOWN
            pairs.append((process, thread))
        return self._compare(pairs)

    def _compare(self, pairs: list[tuple[Process, Thread]]) -> Motion:
        frames = {_frames(p, t.tid) for p, t in pairs}
        calls = {_call(p, t.tid) for p, t in pairs}
        known_frames = None not in frames
        if known_frames and len(frames) > 1:
            return Motion.MOVING
        ran = _ran(pairs, self._looks[-1])
        if ran is None:
            return Motion.UNKNOWN
        if ran == 0.0 and len(calls) == 1 and not _ready(pairs):
            return Motion.FROZEN
        if self._busy(ran, _ready(pairs)) or all(t.state == "R" for _, t in pairs):
            return Motion.SPINNING
        if not known_frames:
            return Motion.POLLING if len({c and c[0] for c in calls}) == 1 else Motion.MOVING
        return Motion.POLLING

    def _busy(self, ran: float, ready: float) -> bool:
        """Many short waits on a crowded machine add up to much time ready and to little time run: that is no work."""
        return ran >= SPIN_SHARE * self._span_s or (
            ran >= STARVED_SHARE * self._span_s and ran + ready >= SPIN_SHARE * self._span_s
        )


def _frames(process: Process, tid: int) -> tuple[tuple[str, str, int], ...] | None:
    stack = process.stack_of(tid)
    return tuple((f.function, f.file, f.line) for f in stack.frames) if stack else None


def _call(process: Process, tid: int) -> tuple[int, tuple[int, ...]] | None:
    if not isinstance(process.syscalls, Ok):
        return None
    call = process.syscalls.value.get(tid)
    return (call.number, call.args) if call else None


def _ran(pairs: list[tuple[Process, Thread]], look: Snapshot) -> float | None:
    """Processor time in seconds between the first and the last look, None where it could not be read."""
    first, last = pairs[0][1], pairs[-1][1]
    if first.run_ns is not None and last.run_ns is not None:
        return (last.run_ns - first.run_ns) / 1e9
    if look.host.clock_ticks <= 0:
        return None
    return (last.cpu_ticks - first.cpu_ticks) / look.host.clock_ticks


def _ready(pairs: list[tuple[Process, Thread]]) -> float:
    """Seconds for which the thread wanted a processor and got none, between the first and the last look; 0 if unknown."""
    first, last = pairs[0][1], pairs[-1][1]
    if first.ready_ns is None or last.ready_ns is None:
        return 0.0
    return (last.ready_ns - first.ready_ns) / 1e9
