"""Commands on a terminal: which server is to be watched, and the way into the terminal interface."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.cli import target
from gpudiag.cli.output import Output
from gpudiag.errors import ExitCode, UsageError
from gpudiag.model.log import LogFacts
from gpudiag.model.report import Report
from gpudiag.session import pipeline

if TYPE_CHECKING:
    from gpudiag.tui.frame import Frame


def fits() -> bool:
    """Whether somebody sits at a terminal that can show screens."""
    from gpudiag.tui import entry

    return entry.fits()


def plain(output: Output) -> bool:
    return output.ascii or "utf" not in (sys.stdout.encoding or "").lower()


def attach(
    pid: int | None,
    output: Output,
    *,
    interval_s: float = 1.0,
    allow_signals: bool = False,
    withhold: Sequence[str] = (),
    ras: bool = False,
) -> int:
    """Watch the server of this process; without one the only server, or the one that the person picks."""
    from gpudiag.tui import entry

    chosen = target.by_pid(pipeline.scan(), pid).root_pid if pid else _choose(output)
    if chosen is None:
        return ExitCode.OK
    return entry.open_attach(
        chosen,
        interval_s=interval_s,
        plain=plain(output),
        allow_signals=allow_signals,
        withhold=withhold,
        ras=ras,
        no_color=output.color == "never",
    )


def home() -> int:
    """What `gpudiag` alone does: watch the only server that runs here, or let the person choose."""
    return attach(None, Output())


def _choose(output: Output) -> int | None:
    """The only server at once; of none or several the person picks. None if they left."""
    from gpudiag.tui import entry

    around = pipeline.scan()
    servers = pipeline.recognise(around)
    return servers[0].root_pid if len(servers) == 1 else entry.choose(plain=plain(output), no_color=output.color == "never")


def recording(file: Path, output: Output) -> int:
    """Show a recording. Raises UsageError without a terminal, RecordingError for a file that is none."""

    def read() -> Sequence[Frame]:
        from gpudiag.session.load import load
        from gpudiag.tui.build import frames_of_recording

        kept = load(file)
        return frames_of_recording(kept.observation, kept.logs)

    return _show(read, output)


def run(directory: Path, output: Output) -> int:
    """Show a server that `gpudiag launch` started, or what is left of it. Raises UsageError without a terminal."""
    _must_fit()
    from gpudiag.tui import entry

    return entry.open_run(directory, plain=plain(output), no_color=output.color == "never")


def told(reports: Sequence[Report], facts: LogFacts, output: Output) -> int:
    """Show what logs say."""

    def read() -> Sequence[Frame]:
        from gpudiag.tui.build import frame_of_reports

        return [frame_of_reports(reports, at=time.time(), facts=facts)]

    return _show(read, output)


def _show(read: Callable[[], Sequence[Frame]], output: Output) -> int:
    _must_fit()
    from gpudiag.tui import entry
    from gpudiag.tui.sources import Kept

    return entry.run(Kept(read), plain=plain(output), no_color=output.color == "never")


def _must_fit() -> None:
    if not fits():
        raise UsageError("--tui needs a terminal", help="leave --tui out, and the report comes as text")
