"""Runs several commands at a time, one for each pid, with a deadline and bounded output."""

from __future__ import annotations

import fcntl
import os
import selectors
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpudiag.collect import procfs
from gpudiag.collect.children import PipedChild

_OUTPUT_LIMIT = 1 << 28
_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_TICK_S = 0.002
_LET_GO_S = 3.0
"""How long a command that was told to end may take to let go of its target."""
_DIE_S = 0.2
"""How long a command that was killed may take to be gone; longer only if the kernel does not let it die."""

IMPATIENCE = 4
"""What part of the deadline is left for the others once a command ran into it."""

NOT_STARTED = -127
"""Status of a command that could not be executed at all; stderr then says why."""


class Finished(NamedTuple):
    """How a command ended. `late` if that was for its deadline; output is then what came until then.

    One that is late and NOT_STARTED had no turn: others had used up the time.
    """

    status: int
    stdout: bytes
    stderr: bytes
    took_s: float
    late: bool


class Batch(NamedTuple):
    """What the commands gave, by pid; `stopped_s` is the time for which any watched pid was traced."""

    finished: dict[int, Finished]
    stopped_s: float


def run_all(commands: Mapping[int, Sequence[str]], *, deadline_s: float, stopping: bool = False, at_once: bool = False) -> Batch:
    """Run the command of every pid, at most two for each processor at a time, or `at_once` all of them.

    Once one of them has run into the deadline, those that start later get a quarter of it, and a deadline later it is over
    for all: what hangs the command for one worker of a server tends to hang it for all of them.

    `stopping` commands hold their pid under ptrace: they are told to end by closing their stdin and get time to let go,
    and the time for which a pid is traced is measured (to about 2 ms; on a crowded machine the whole time of the command
    where no look met the stop). Others are killed at the deadline.
    """
    runner = _Runner(commands, deadline_s, stopping, len(commands) if at_once else 0)
    try:
        runner.run()
    finally:
        runner.abandon()
    return Batch(runner.finished, runner.stopped_s)


class _Running:
    """One command: its pipes, what came out so far, and when it is due."""

    def __init__(self, pid: int, command: Sequence[str], deadline_s: float) -> None:
        self.pid = pid
        self.started = time.monotonic()
        self.due = self.started + deadline_s
        self.late = False
        self.seen_traced = False
        self._child = PipedChild(command, own_session=True, dies_with_us=True)
        self._output = {self._child.stdout.fileno(): bytearray(), self._child.stderr.fileno(): bytearray()}
        self.open = set(self._output)
        fcntl.fcntl(self._child.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def take(self, fd: int) -> None:
        """Read once; the stream leaves `open` at its end or once it has said too much."""
        piece = os.read(fd, _READ_BYTES)
        buffer = self._output[fd]
        buffer += piece
        if not piece or len(buffer) > _OUTPUT_LIMIT:
            self.open.discard(fd)

    def end(self, *, gently: bool) -> None:
        """Have it end, `gently` by closing its stdin; what does not obey is killed by `finish`."""
        self.late = True
        self._child.stdin.close()
        if not gently:
            self._child.kill()

    def finish(self, grace_s: float) -> Finished:
        """What it gave, once its streams are at their end or its time is over."""
        stdout, stderr = (bytes(buffer) for buffer in self._output.values())
        self._child.close_pipes()
        status = self._child.reap(grace_s)
        if status is None:
            self._child.kill()
            self.late = True
        return Finished(-1 if status is None else status, stdout, stderr, time.monotonic() - self.started, self.late)


class _Runner:
    def __init__(self, commands: Mapping[int, Sequence[str]], deadline_s: float, stopping: bool, width: int) -> None:
        self.finished: dict[int, Finished] = {}
        self.stopped_s = 0.0
        self._waiting = deque(commands.items())
        self._deadline_s = deadline_s
        self._stopping = stopping
        self._grace_s = _LET_GO_S if stopping else _DIE_S
        self._active: list[_Running] = []
        self._selector = selectors.DefaultSelector()
        self._width = max(width, 2 * len(os.sched_getaffinity(0)))
        self._over: float | None = None
        """When no command may run any more; None as long as none was late."""

    def run(self) -> None:
        last = time.monotonic()
        while self._waiting or self._active:
            self._start_some()
            for key, _ in self._selector.select(self._patience()):
                self._read(key.fd, key.data)
            now = time.monotonic()
            traced = [run for run in self._active if _traced(run.pid)] if self._stopping else []
            for run in traced:
                run.seen_traced = True
            if traced:
                self.stopped_s += now - last
            last = now
            for run in self._active:
                if now > run.due and not run.late:
                    run.end(gently=self._stopping)
                    self._over = self._over or now + self._deadline_s
            for run in [r for r in self._active if not r.open or now > r.due + self._grace_s]:
                self._finish(run)

    def abandon(self) -> None:
        """End what still runs: gpudiag was interrupted."""
        for run in list(self._active):
            run.end(gently=self._stopping)
            self._finish(run)
        self._selector.close()

    def _start_some(self) -> None:
        while self._waiting and len(self._active) < self._width:
            pid, command = self._waiting.popleft()
            allowed_s = self._allowed_s()
            if allowed_s <= 0:
                self.finished[pid] = Finished(NOT_STARTED, b"", b"", 0.0, late=True)
                continue
            try:
                run = _Running(pid, command, allowed_s)
            except OSError as error:
                self.finished[pid] = Finished(NOT_STARTED, b"", str(error).encode(), 0.0, late=False)
                continue
            self._active.append(run)
            for fd in run.open:
                self._selector.register(fd, selectors.EVENT_READ, run)

    def _allowed_s(self) -> float:
        if self._over is None:
            return self._deadline_s
        return min(self._deadline_s / IMPATIENCE, self._over - time.monotonic())

    def _patience(self) -> float:
        if self._stopping:
            return _TICK_S
        due = min((r.due + self._grace_s if r.late else r.due for r in self._active), default=0.0)
        return max(0.0, due - time.monotonic())

    def _read(self, fd: int, run: _Running) -> None:
        run.take(fd)
        if fd not in run.open:
            self._selector.unregister(fd)

    def _finish(self, run: _Running) -> None:
        for fd in run.open:
            self._selector.unregister(fd)
        self._active.remove(run)
        self.finished[run.pid] = finished = run.finish(self._grace_s)
        if self._stopping and finished.status == 0 and not run.seen_traced:
            # The stop fell between two looks at the tracer: then all of the command's time is the least that is surely enough.
            self.stopped_s += finished.took_s


def _traced(pid: int) -> bool:
    try:
        return procfs.read_status(pid).tracer_pid != 0
    except OSError:
        return False
