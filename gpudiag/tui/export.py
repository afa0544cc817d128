"""What leaves the terminal: the report as Markdown, a recording, and with permission a signal."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from gpudiag.errors import GpudiagError
from gpudiag.model.report import Report
from gpudiag.render.markdown import markdown
from gpudiag.render.plain import clean
from gpudiag.session.record import save
from gpudiag.session.redact import Redactor
from gpudiag.tui.frame import unpack
from gpudiag.tui.state import State
from gpudiag.tui.view import View

_MAX_COMMAND: Final = 400


class SignalTarget(Struct, frozen=True, kw_only=True):
    """A process as it was seen: `start_ticks` tells it from a later one with the same pid."""

    pid: int
    start_ticks: int
    command: str


def report(state: State) -> tuple[str, str]:
    """The report shown as redacted Markdown, and what was taken out of it, in words."""
    shown = _report_of(state)
    redactor = Redactor()
    return ("", "nothing") if shown is None else (markdown(redactor.apply(shown)), redactor.report.summary)


def _report_of(state: State) -> Report | None:
    """The report with the strings as they were read: what is shown was cleaned, and a renderer cleans for itself."""
    frame = state.frame
    reports = unpack(frame.packed).reports if frame is not None else ()
    return reports[min(state.server, len(reports) - 1)] if reports else state.report


def free_name(stem: str, suffix: str) -> str:
    """A name that is not taken in this directory, with the time in it."""
    stamp = time.strftime("%H%M%S")
    candidate = f"{stem}-{stamp}{suffix}"
    number = 1
    while os.path.lexists(candidate):
        number += 1
        candidate = f"{stem}-{stamp}-{number}{suffix}"
    return candidate


def write_report(state: State, name: str) -> str:
    """Write it, and say so in one line. Never over a file that is there."""
    text, taken = report(state)
    if not text:
        return "there is no report yet"
    try:
        with open(Path(name).expanduser(), "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"cannot write {clean(name)}: {error.strerror}"
    return f"the report is in {clean(name)}; taken out: {taken}"


def write_recording(state: State, name: str) -> str:
    """Save what the frame shown was made of, and say so in one line."""
    frame = state.frame
    details = unpack(frame.packed) if frame is not None else None
    if details is None or details.observation is None:
        return "there is nothing to record: no process was looked at"
    path = Path(name).expanduser()
    try:
        taken = save(details.observation, path, command="attach", logs=details.logs)
    except GpudiagError as error:
        return clean(error.message)
    return f"recorded in {clean(name)}; taken out: {taken.summary}"


def target_of(view: View, pid: int) -> SignalTarget | None:
    """The process of a frame, with the command line by which a person knows it."""
    observation = view.details.observation
    process = observation.last.process(pid) if observation is not None else None
    if process is None:
        return None
    return SignalTarget(pid=pid, start_ticks=process.start_ticks, command=clean(process.title, limit=_MAX_COMMAND))


def terminate(target: SignalTarget) -> str:
    """Send SIGTERM, if the pid still belongs to the process that was shown."""
    from gpudiag.collect import procfs

    try:
        # The descriptor holds on to the process: between the check and the signal the pid cannot pass to another one.
        descriptor = os.pidfd_open(target.pid)
        try:
            if procfs.read_stat(target.pid).start_ticks != target.start_ticks:
                return f"pid {target.pid} belongs to another process now; nothing was sent"
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"cannot send SIGTERM to pid {target.pid}: {error.strerror}"
    return f"sent SIGTERM to pid {target.pid}"


def rescue(state: State) -> str:
    """Keep what was seen last in a new file, and return the command that reads it, or why there is none."""
    while state.inbox:
        state.take(*state.inbox.popleft())
    state.shown = None
    folder = Path(tempfile.mkdtemp(prefix="gpudiag-"))
    path = folder / "last-look.gpudiag"
    said = write_recording(state, str(path))
    if path.exists():
        return f"gpudiag explain {path}"
    folder.rmdir()
    return f"gpudiag attach --once ({said})"
