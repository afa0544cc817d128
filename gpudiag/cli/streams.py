"""Standard streams that the shell closed (`>&-`): Python then has None for them, and the next file gets their number."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO


def open_missing() -> None:
    """Put an empty input, an output that refuses every write, and an error stream that forgets in the places of closed ones.

    A report that goes nowhere is no success: written to a descriptor that is open for reading only, it fails with EBADF.
    """
    if sys.stdin is None:
        sys.stdin = _nothing(os.O_RDONLY, "r")
    if sys.stdout is None:
        sys.stdout = _nothing(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _nothing(os.O_WRONLY, "w")


def _nothing(flags: int, mode: Literal["r", "w"]) -> TextIO:
    return open(os.open(os.devnull, flags), mode)
