"""What to do when nobody reads our output any more."""

from __future__ import annotations

import contextlib
import os
import sys


def discard_stdout() -> None:
    """Point stdout at nothing: its reader has gone, and Python's flush at exit must not fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
