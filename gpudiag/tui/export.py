"""What leaves the terminal: the report as Markdown, and a recording. Imported when it is asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpudiag.errors import GpudiagError
from gpudiag.model.report import Report
from gpudiag.render.markdown import markdown
from gpudiag.render.plain import clean
from gpudiag.session.record import save
from gpudiag.session.redact import Redactor
from gpudiag.tui.frame import unpack
from gpudiag.tui.state import State


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
