"""The supervisor's side of the process that takes evidence: one request at a time, a deadline for each."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from gpudiag.launch.evidence import Ask, Told
from gpudiag.launch.own_process import command

DEADLINE_S: Final = 45.0
"""A look takes 2 to 9 s; a busy machine and a thousand processes make it longer."""
_READ_BYTES: Final = 1 << 16


class TakerProcess:
    """Keeps one taker ready. `fd` becomes readable when it has answered."""

    def __init__(self, run: Path, errors: IO[bytes]) -> None:
        self._run = run
        self._errors = errors
        self._due = 0.0
        self._ask: Ask | None = None
        self._partial = b""
        self._start()

    @property
    def busy(self) -> bool:
        return self._ask is not None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def fd(self) -> int:
        return self._out.fileno()

    def ask(self, ask: Ask) -> None:
        """Hand over a request; only while it is not busy."""
        self._ask, self._due = ask, time.monotonic() + DEADLINE_S
        try:
            os.write(self._in.fileno(), msgspec.json.encode(ask) + b"\n")
        except BrokenPipeError:
            self._restart()
            os.write(self._in.fileno(), msgspec.json.encode(ask) + b"\n")

    def answer(self) -> Told | None:
        """The answer, if it is there; one that says why if the taker died or is late. None: still at it."""
        ask = self._ask
        if ask is None:
            return None
        try:
            piece = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            if time.monotonic() < self._due:
                return None
            return self._failed(ask, f"no evidence within {DEADLINE_S:g} s")
        self._partial += piece
        if not piece:
            return self._failed(ask, "the process that takes evidence ended; see supervisor.log")
        line, end, rest = self._partial.partition(b"\n")
        if not end:
            return None
        self._partial, self._ask = rest, None
        return msgspec.json.decode(line, type=Told)

    def close(self) -> None:
        """End it. Whatever it did for the last request is on disk as far as it came."""
        self._in.close()
        self._out.close()
        self._child.kill()
        try:
            self._child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return

    def _failed(self, ask: Ask, error: str) -> Told:
        self._ask = None
        self._restart()
        return Told(number=ask.number, why=ask.why, error=error)

    def _restart(self) -> None:
        self.close()
        self._start()

    def _start(self) -> None:
        self._partial = b""
        self._child = subprocess.Popen(
            command("gpudiag.launch.evidence", str(self._run)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._in, self._out = cast("IO[bytes]", self._child.stdin), cast("IO[bytes]", self._child.stdout)
        os.set_blocking(self._out.fileno(), False)
