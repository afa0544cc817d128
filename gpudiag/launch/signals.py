"""Signals as something to wait for: a pipe that becomes readable, and the numbers that came."""

from __future__ import annotations

import os
import signal
from types import FrameType

PASSED_ON = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Catches what ends a process, and SIGHUP, which must not: the terminal may go, the server stays.

    Handlers are used for all of them, since ignored signals would stay ignored in the server.
    """

    def __init__(self) -> None:
        self.fd, self._far = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._far, False)
        signal.set_wakeup_fd(self._far, warn_on_full_buffer=False)
        for number in (*PASSED_ON, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, _do_nothing)

    def taken(self) -> list[signal.Signals]:
        """Those to be passed on that came since the last call, in their order."""
        try:
            numbers = os.read(self.fd, 4096)
        except BlockingIOError:
            return []
        return [signal.Signals(n) for n in numbers if n in PASSED_ON]


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor says it all."""
