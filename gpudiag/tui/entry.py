"""Opens the terminal interface, and leaves the terminal as it was, whatever happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from gpudiag.errors import ExitCode, GpudiagError
from gpudiag.tui.sources import Source

_NO_SCREEN: Final = frozenset({"dumb", "unknown", ""})


def fits(*, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> bool:
    """Whether somebody sits at a terminal that can show screens. Textual itself never asks and writes escapes into pipes."""
    given = (stdin or sys.stdin, stdout or sys.stdout)
    return all(stream is not None and stream.isatty() for stream in given) and os.environ.get("TERM", "") not in _NO_SCREEN


class ScreenError(GpudiagError):
    """The terminal interface broke. What it showed is kept."""

    exit_code = ExitCode.INTERNAL


def run(source: Source, *, plain: bool = False, allow_signals: bool = False, no_color: bool = False) -> int:
    """Show this source until the person leaves, and return the exit code.

    Raises ScreenError after a bug: the terminal is as it was then, and what was seen last is in a file.
    """
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    if no_color:
        os.environ["NO_COLOR"] = "1"
    said = os.environ.get("NO_COLOR")
    if not said:
        # Set and empty means nothing (https://no-color.org); Textual takes it for a yes.
        os.environ.pop("NO_COLOR", None)
    from gpudiag.tui.app import GpudiagApp

    app = GpudiagApp(source, plain=plain, allow_signals=allow_signals)
    if said:
        # Textual takes the variable away; children that are started later are to see it.
        os.environ["NO_COLOR"] = said
    broke = False
    code: int | None = None
    try:
        code = app.run()
    except Exception:  # noqa: BLE001  whatever it was, what was seen is worth keeping
        broke = True
    finally:
        source.stop()
    if source.error is not None:
        raise source.error
    if broke or app.return_code:
        from gpudiag.tui.export import rescue

        raise ScreenError("the terminal interface broke; what was seen is kept", help=rescue(app.state))
    return code or ExitCode.OK


def open_attach(
    pid: int,
    *,
    interval_s: float = 1.0,
    plain: bool = False,
    allow_signals: bool = False,
    withhold: Sequence[str] = (),
    ras: bool = False,
    no_color: bool = False,
) -> int:
    """Watch the server that this process belongs to."""
    from gpudiag.tui.live import Live
    from gpudiag.tui.orders import Order

    order = Order(pid=pid, interval_s=interval_s, withhold=tuple(withhold), ras=ras)
    return run(Live(order), plain=plain, allow_signals=allow_signals, no_color=no_color)


def open_run(directory: Path, *, plain: bool = False, allow_signals: bool = False) -> int:
    """Watch a server that `gpudiag launch` started, from its run directory. Raises UsageError if it holds no run."""
    from gpudiag.tui.live import Live
    from gpudiag.tui.orders import Order
    from gpudiag.tui.rundir import read_run

    read_run(directory)
    return run(Live(Order(directory=str(directory.absolute()))), plain=plain, allow_signals=allow_signals)
