"""Files that are written as a whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of either. Raises OSError.

    It is for its owner alone (mode 0600).
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def remember(path: Path, data: bytes) -> bool:
    """Write a file of a cache, in a directory that is made where it is missing; whether that worked.

    A cache that cannot be written costs the next run some time and nothing else.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, data)
    except OSError:
        return False
    return True
