"""Names for files that are written on request."""

from __future__ import annotations

import os
import time


def free_name(stem: str, suffix: str) -> str:
    """A name that is not taken in this directory, with the time in it."""
    stamp = time.strftime("%H%M%S")
    candidate = f"{stem}-{stamp}{suffix}"
    number = 1
    while os.path.lexists(candidate):
        number += 1
        candidate = f"{stem}-{stamp}-{number}{suffix}"
    return candidate
