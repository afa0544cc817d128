"""What the demo's processes say about themselves through one pipe, while they start and just before they hang."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from gpudiag.errors import GpudiagError


class DemoError(GpudiagError):
    """The demo server did not come up or did not come to the state it was asked for."""


class Reports:
    """The reader of the pipe. `port` is the frontend's, the rest is by rank."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._partial = b""
        self.port: int | None = None
        self.rank_pids: dict[int, int] = {}
        self.feeder_pids: dict[int, int] = {}
        self.up: set[int] = set()
        self.waiting: set[int] = set()
        self.compiling = False

    def read_until(self, done: Callable[[], bool], deadline: float, alive: Callable[[], bool]) -> None:
        """Read until `done`; raises DemoError at `deadline` (monotonic seconds) or when `alive` no longer holds."""
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        while not done():
            if time.monotonic() > deadline or not alive():
                raise DemoError("the demo server did not come up in time or ended early")
            if ready.poll(100):
                self._take(os.read(self._fd, 4096))

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            word, *numbers = line.decode("ascii").split()
            first, *rest = map(int, numbers)
            if word == "port":
                self.port = first
            elif word == "rank":
                self.rank_pids[first] = rest[0]
            elif word == "feeder":
                self.feeder_pids[first] = rest[0]
            elif word == "up":
                self.up.add(first)
            elif word == "waiting":
                self.waiting.add(first)
            elif word == "compiling":
                self.compiling = True
