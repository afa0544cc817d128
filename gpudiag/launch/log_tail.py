"""Follows a log that is being written, in bounded steps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

STEP_BYTES: Final = 1 << 20
"""Read at most in one step. A server that writes more in a second is followed at its end alone; the file keeps everything."""
BACKLOG_BYTES: Final = 8 << 20


class LogTail:
    """What was added to a file since the last call, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._offset = 0
        self._partial = b""
        self.size = 0

    def read(self) -> bytes:
        """The complete lines that came, at most a MiB of them; empty if the file cannot be read."""
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self.size = os.fstat(self._fd).st_size
            if self.size < self._offset:
                # Somebody truncated the log; what comes now is new.
                self._offset, self._partial = 0, b""
            if self.size - self._offset > BACKLOG_BYTES:
                self._offset, self._partial = self.size - STEP_BYTES, b""
            piece = os.pread(self._fd, STEP_BYTES, self._offset)
        except OSError:
            return b""
        self._offset += len(piece)
        whole = self._partial + piece
        # A progress bar overwrites its line with carriage returns and may end none for minutes.
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        self._partial = whole[end:][-STEP_BYTES:]
        return whole[:end]

    @property
    def behind(self) -> bool:
        return self._offset < self.size

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
