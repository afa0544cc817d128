"""A command under a terminal of its own, and what it wrote there, kept as an asciicast (version 2)."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path


class Terminal:
    """`columns` by `rows`. What the command writes goes to `cast` as it comes."""

    def __init__(self, command: Sequence[str], cast: Path, *, columns: int, rows: int) -> None:
        self.size = f"{columns}x{rows}"
        self.written = 0
        """Bytes so far."""
        self._began = time.monotonic()
        self._fd, inside = pty.openpty()
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self._child = subprocess.Popen(
            command, stdin=inside, stdout=inside, stderr=inside, env=environ, start_new_session=True, close_fds=True
        )
        os.close(inside)
        self._cast = cast.open("w", encoding="utf-8")
        self._cast.write(json.dumps({"version": 2, "width": columns, "height": rows}) + "\n")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A terminal whose last writer has gone reads as EIO.
        with contextlib.suppress(OSError):
            while piece := os.read(self._fd, 1 << 16):
                self.written += len(piece)
                at = round(time.monotonic() - self._began, 3)
                self._cast.write(json.dumps([at, "o", decoder.decode(piece)]) + "\n")
        self._cast.close()

    def type(self, keys: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, keys.encode())

    def leave(self, limit_s: float = 5.0) -> tuple[int | None, float]:
        """Type q; the exit status (None if it had to be killed) and the seconds that leaving took."""
        began = time.monotonic()
        self.type("q")
        status: int | None = None
        try:
            status = self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        took_s = time.monotonic() - began
        self._thread.join(2)
        os.close(self._fd)
        return status, took_s
