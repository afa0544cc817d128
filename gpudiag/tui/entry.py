"""Opens the terminal interface, and leaves the terminal as it was, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from gpudiag.errors import ExitCode, GpudiagError
from gpudiag.tui.orders import MIN_INTERVAL_S
from gpudiag.tui.sources import Source

if TYPE_CHECKING:
    from textual.app import App

    from gpudiag.tui.chooser import Candidate

_NO_SCREEN: Final = frozenset({"dumb", "unknown", ""})


def fits(*, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> bool:
    """Whether somebody sits at a terminal that can show screens. Textual itself never asks and writes escapes into pipes."""
    given = (stdin or sys.stdin, stdout or sys.stdout)
    return all(stream is not None and stream.isatty() for stream in given) and os.environ.get("TERM", "") not in _NO_SCREEN


class ScreenError(GpudiagError):
    """The terminal interface broke. What it showed is kept."""

    exit_code = ExitCode.INTERNAL


def run(
    source: Source,
    *,
    plain: bool = False,
    allow_signals: bool = False,
    no_color: bool = False,
    interval_s: float = 1.0,
) -> int:
    """Show this source until the person leaves, and return the exit code.

    Raises ScreenError after a bug: the terminal is as it was then, and what was seen last is in a file.
    """
    with _environment(no_color=no_color):
        from gpudiag.tui.app import GpudiagApp
        from gpudiag.tui.keyboard import forgive

        forgive()
        app = GpudiagApp(source, plain=plain, allow_signals=allow_signals, interval_s=interval_s)
    broke = False
    code: int | None = None
    try:
        code = _until_left(app)
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


def _until_left(app: App[int]) -> int | None:
    """Run an application until the person leaves it, and return what it returns.

    Raises SystemExit with 128 + number after SIGTERM or SIGHUP. They leave it as a key does: an exception that a signal raises
    in the middle of a drawing is told as a bug of that drawing, or swallowed. Where nothing reacts any more, a second one ends
    it as it would end every other command.
    """
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    seen: list[int] = []

    async def shown() -> int | None:
        loop = asyncio.get_running_loop()

        def leave(number: int) -> None:
            seen.append(number)
            for one in signals:
                loop.remove_signal_handler(one)
                signal.signal(one, before[one])
            app.exit()

        for number in signals:
            loop.add_signal_handler(number, leave, number)
        # The mouse stays the terminal's, so that a pid or a path can be selected.
        return await app.run_async(mouse=False)

    try:
        code = asyncio.run(shown())
    finally:
        for number in signals:
            signal.signal(number, before[number])
    if seen:
        raise SystemExit(128 + seen[0])
    return code


@contextlib.contextmanager
def _environment(*, no_color: bool) -> Iterator[None]:
    """While an application is made: NO_COLOR as https://no-color.org has it, set and empty being no yes.

    Textual takes the variable away; children that are started later are to see it.
    """
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    before = os.environ.pop("NO_COLOR", None)
    if before or no_color:
        os.environ["NO_COLOR"] = before or "1"
    try:
        yield
    finally:
        os.environ.pop("NO_COLOR", None)
        if before is not None:
            os.environ["NO_COLOR"] = before


def choose(*, plain: bool = False, no_color: bool = False) -> int | None:
    """Have the person pick one of the servers of this host. None if they left."""
    with _environment(no_color=no_color):
        from gpudiag.tui.chooser import Chooser
        from gpudiag.tui.keyboard import forgive

        forgive()
        chooser = Chooser(_candidates, plain=plain)
    return _until_left(chooser)


def _candidates() -> Sequence[Candidate]:
    from gpudiag.session import pipeline
    from gpudiag.tui.chooser import Candidate
    from gpudiag.tui.secrets import shown_command

    around = pipeline.scan()
    found = [(server, around.process(server.root_pid)) for server in pipeline.recognise(around)]
    return [
        Candidate(pid=server.root_pid, engine=server.engine, ranks=len(server.ranks), command=shown_command(process))
        for server, process in found
        if process is not None
    ]


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
    """Watch the server that this process belongs to, never more often than four times a second."""
    from gpudiag.tui.live import Live
    from gpudiag.tui.orders import Order

    interval_s = max(MIN_INTERVAL_S, interval_s)
    order = Order(pid=pid, interval_s=interval_s, withhold=tuple(withhold), ras=ras)
    return run(Live(order), plain=plain, allow_signals=allow_signals, no_color=no_color, interval_s=interval_s)


def open_run(directory: Path, *, plain: bool = False, allow_signals: bool = False, no_color: bool = False) -> int:
    """Watch a server that `gpudiag launch` started, from its run directory. Raises UsageError if it holds no run."""
    from gpudiag.tui.live import Live
    from gpudiag.tui.orders import Order
    from gpudiag.tui.rundir import read_run

    read_run(directory)
    return run(Live(Order(directory=str(directory.absolute()))), plain=plain, allow_signals=allow_signals, no_color=no_color)
