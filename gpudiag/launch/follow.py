"""The foreground of a start without a terminal interface: a line for each phase, then the report, and the exit code."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from gpudiag.errors import ExitCode
from gpudiag.launch.kernel import open_pidfd
from gpudiag.launch.run_directory import REPORT_TEXT, RunDirectory
from gpudiag.launch.start import Started
from gpudiag.launch.status import DOING, size
from gpudiag.model.decoding import decode_json
from gpudiag.model.report import Report
from gpudiag.model.run import ENDED, PhaseProgress, RunProgress

EVERY_S: Final = 0.5
STILL_S: Final = 15.0
"""So often a phase that goes on says so."""
SILENT_S: Final = 20.0
"""The supervisor replaces progress.json each second."""
_MOST_BYTES: Final = 64 << 20

Say = Callable[[str], None]


def follow(started: Started, *, say: Say, show: Say, detach: bool) -> int:
    """Say what happens until the server is gone, or with `detach` until it is ready; the exit code.

    `say` gets lines for a person, `show` the text of a report. SIGINT and SIGTERM are passed on to the supervisor, which
    ends the server; with SIGHUP this process ends and the server stays.
    """
    run = RunDirectory(started.run)
    teller = _Teller(run, say, show)
    silent = False
    pidfd, server = open_pidfd(started.supervisor_pid), open_pidfd(started.server_pid)
    try:
        with _passing_on(pidfd, say) as interrupted:
            while True:
                progress = run.progress()
                if not silent and progress is not None and time.time() - progress.at > SILENT_S:
                    silent = True
                    say(_silent(started))
                if progress is not None:
                    teller.tell(progress)
                    if progress.state in ENDED and _gone(pidfd):
                        return teller.end(progress, interrupted=bool(interrupted))
                    if detach and progress.state == "serving":
                        say(f"detached; the server runs on and ends with: kill {started.supervisor_pid}")
                        return ExitCode.OK
                if _gone(pidfd):
                    progress = run.progress()
                    if progress is not None and progress.state in ENDED:
                        continue
                    say(_without_supervisor(started, server_lives=not _gone(server)))
                    say(f"log and evidence: {run.path}")
                    return ExitCode.NOT_INSPECTABLE
                time.sleep(EVERY_S)
    finally:
        for fd in (pidfd, server):
            if fd is not None:
                os.close(fd)


class _Teller:
    """Says each thing once."""

    def __init__(self, run: RunDirectory, say: Say, show: Say) -> None:
        self._run = run
        self._say = say
        self._show = show
        self._phase: str | None = None
        self._state = "starting"
        self._shown: str | None = None
        self._said_at = time.monotonic()
        self.was_ready = False

    def tell(self, progress: RunProgress) -> None:
        current = progress.phases[-1]
        if current.phase != self._phase:
            for phase in progress.phases:
                if phase.phase == self._phase:
                    self._say(f"{_took(phase)}")
            self._phase = current.phase
            self._say_now(progress.sentence if current.phase != "ready" else _ready(progress))
        self.was_ready |= current.phase == "ready"
        if progress.state != self._state:
            self._state = progress.state
            if progress.state not in ("starting", "serving") or self.was_ready:
                self._say_now(progress.sentence)
            if progress.state == "stalled":
                self._report(progress)
        elif current.phase != "ready" and time.monotonic() - self._said_at >= STILL_S:
            self._say_now(progress.sentence)

    def end(self, progress: RunProgress, *, interrupted: bool) -> int:
        """Show what is left, and say with which code to end."""
        report = self._report(progress) if progress.state != "stopped" or not interrupted or progress.code else None
        self._say(f"log and evidence: {self._run.path}")
        if progress.state == "stopped" and progress.code is None:
            if self.was_ready:
                return ExitCode.OK
            return ExitCode.INTERRUPTED if interrupted else ExitCode.NOT_INSPECTABLE
        found = progress.code is not None or (report is not None and report.verdict.status == "finding")
        return ExitCode.FINDINGS if found else ExitCode.NOT_INSPECTABLE

    def _report(self, progress: RunProgress) -> Report | None:
        if progress.report is None:
            return None
        path = self._run.path / progress.report
        if progress.report != self._shown:
            self._shown = progress.report
            with contextlib.suppress(OSError):
                self._show(_read(path.with_name(REPORT_TEXT)).decode("utf-8", "replace"))
        try:
            return decode_json(_read(path), Report)
        except (OSError, msgspec.MsgspecError):
            return None

    def _say_now(self, line: str) -> None:
        self._said_at = time.monotonic()
        self._say(line)


@contextlib.contextmanager
def _passing_on(pidfd: int | None, say: Say) -> Iterator[list[int]]:
    """Pass SIGINT and SIGTERM on while this lasts; the numbers of those that came are in the list."""
    came: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        del frame
        came.append(number)
        if pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
                # One that was stopped would never see it.
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        say("ending the server; once more to kill it" if len(came) == 1 else "killing the server")

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silent(started: Started) -> str:
    return (
        f"no news of the supervisor (pid {started.supervisor_pid}) for {SILENT_S:.0f} s: it is stopped, or the disk is full; "
        f"kill -CONT {started.supervisor_pid}, df -h {started.run}"
    )


def _without_supervisor(started: Started, *, server_lives: bool) -> str:
    """Nothing is said of why: it cannot be known from here."""
    gone = f"the supervisor (pid {started.supervisor_pid}) is gone"
    if not server_lives:
        return f"{gone}, and so is the server"
    pid = started.server_pid
    return f"{gone}; the server runs on and nobody watches it: gpudiag attach {pid}; end it with: kill {pid}"


def _gone(pidfd: int | None) -> bool:
    if pidfd is None:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _took(phase: PhaseProgress) -> str:
    took = (phase.ended_at or phase.began_at) - phase.began_at
    last = f" (last time {phase.last_run_s:.1f} s)" if phase.last_run_s is not None else ""
    amount = f", {size(phase.done)}" if phase.done and phase.unit == "B" else ""
    return f"  {DOING[phase.phase]}: {took:.1f} s{amount}{last}"


def _ready(progress: RunProgress) -> str:
    first, ready = progress.phases[0], progress.phases[-1]
    return f"ready after {ready.began_at - first.began_at:.1f} s"


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES)
