"""Where frames come from. A source belongs to nobody's thread: it calls back from whichever it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from gpudiag.errors import GpudiagError
from gpudiag.tui.frame import Frame, Note, encode
from gpudiag.tui.orders import Asked

Deliver = Callable[[Frame | Note, bytes], None]
"""Called with each message and its encoded form, possibly from another thread."""


class Source(Protocol):
    """`live` is whether more frames come by themselves. With an `error` nothing will come, and nothing came."""

    live: bool
    error: GpudiagError | None

    def start(self, deliver: Deliver) -> None:
        """Begin, or begin again after trouble. Returns at once."""

    def stop(self) -> None:
        """End. Returns at once, whatever the source is doing."""

    def ask(self, what: Asked, interval_s: float = 1.0) -> None:
        """A look now, native stacks once, another interval. A source that cannot ignores it."""


class Kept:
    """What was kept of a server. It is read and judged while the screen comes up."""

    live = False

    def __init__(self, read: Callable[[], Sequence[Frame]]) -> None:
        self._read = read
        self.error: GpudiagError | None = None

    def start(self, deliver: Deliver) -> None:
        threading.Thread(target=self._deliver, args=(deliver,), daemon=True, name="reader").start()

    def _deliver(self, deliver: Deliver) -> None:
        try:
            for frame in self._read():
                deliver(frame, encode(frame))
        except GpudiagError as error:
            self.error = error
            deliver(Note(text=error.message, help=error.help, trouble=True), b"")

    def stop(self) -> None:
        return

    def ask(self, what: Asked, interval_s: float = 1.0) -> None:  # noqa: ARG002
        return
