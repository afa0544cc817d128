"""gpudiag's own child processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import gpudiag
from gpudiag.collect.parent_death import dying_with_me

_abandoned: list[subprocess.Popen[bytes]] = []
"""Children that did not end in time. Kept so that they are not complained about; init reaps them after gpudiag."""


class PipedChild:
    """A child with pipes on stdin, stdout and stderr. With `dies_with_us` it ends with the thread that started it."""

    def __init__(self, command: Sequence[str], *, own_session: bool = False, dies_with_us: bool = False) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environ(),
            start_new_session=own_session,
            # It calls nothing that another thread may have locked.
            preexec_fn=dying_with_me() if dies_with_us else None,  # noqa: PLW1509
        )
        self.stdin = cast("IO[bytes]", self.process.stdin)
        self.stdout = cast("IO[bytes]", self.process.stdout)
        self.stderr = cast("IO[bytes]", self.process.stderr)

    def close_pipes(self) -> None:
        """Close all three; what was not read is lost."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    def kill(self) -> None:
        """Send SIGKILL. A filter on gpudiag itself may refuse signals; the child then ends when its pipes close."""
        try:
            self.process.kill()
        except PermissionError:
            return

    def reap(self, timeout_s: float) -> int | None:
        """The exit status, or None for a child that does not end in time: the kernel may not let it die yet."""
        try:
            return self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _abandoned.append(self.process)
            return None


def _environ() -> dict[str, str]:
    """Ours, so that a child imports the same gpudiag, and without the backtraces that py-spy would add to its errors."""
    root = str(Path(gpudiag.__file__).resolve().parents[1])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, "PYTHONPATH": path, "RUST_BACKTRACE": "0"}
