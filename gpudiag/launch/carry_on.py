"""What may fail without an end of the supervisor: a server must not lose it because a disk is full or a directory is gone."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def carry_on() -> Iterator[None]:
    """Write an OSError to standard error, which is supervisor.log, and go on."""
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {type(error).__name__}: {error}\n")
            sys.stderr.flush()
