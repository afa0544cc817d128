"""Where frames come from. A source belongs to nobody's thread: it calls back from whichever it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpudiag.tui.frame import Frame, Note, encode

Deliver = Callable[[Frame | Note, bytes], None]
"""Called with each message and its encoded form, possibly from another thread."""


class Source(Protocol):
    """`live` is whether more frames come by themselves; `pid` the server, where there is one to send a signal to."""

    live: bool

    def start(self, deliver: Deliver) -> None:
        """Begin, or begin again after trouble. Returns at once."""

    def stop(self) -> None:
        """End. Returns at once, whatever the source is doing."""

    def ask(self, what: str, interval_s: float = 1.0) -> None:
        """'look' now, 'native' stacks once, another 'interval'. A source that cannot ignores it."""


class Frames:
    """Frames that are there already: a recording."""

    live = False

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames

    def start(self, deliver: Deliver) -> None:
        for frame in self._frames:
            deliver(frame, encode(frame))

    def stop(self) -> None:
        return

    def ask(self, what: str, interval_s: float = 1.0) -> None:  # noqa: ARG002
        return
