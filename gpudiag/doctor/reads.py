"""Bounded reads below a root directory, and how one attempt went."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from gpudiag.model.reading import Failed, Ok, Unavailable

T = TypeVar("T")

TEXT_LIMIT: Final = 1 << 20
"""Bytes read of one file of /proc or /sys at most."""


class Root:
    """The directory that stands for '/': the real one, or a made-up tree in a test."""

    def __init__(self, path: Path | str = "/") -> None:
        self.path = Path(path)

    @property
    def real(self) -> bool:
        return self.path == Path("/")

    def at(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def text(self, path: str, limit: int = TEXT_LIMIT) -> str:
        """The file without surrounding white space. Raises OSError."""
        return self.data(path, limit).decode("utf-8", "replace").strip()

    def data(self, path: str, limit: int = TEXT_LIMIT) -> bytes:
        return bounded(self.at(path), limit)


def open_files(root: Root, pid: str) -> set[str]:
    """Paths that a process has open. Raises OSError if it is gone or not ours to look at."""
    directory = root.at(f"proc/{pid}/fd")
    found = set()
    for name in os.listdir(directory):
        # A descriptor that was closed between the listing and here is not open.
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(directory / name))
    return found


def bounded(path: Path | str, limit: int = TEXT_LIMIT) -> bytes:
    """At most `limit` bytes of a regular file. Never waits for a writer of a FIFO. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read(limit) or b""


def attempt(read: Callable[[], T], *, missing: str = "", help: str = "") -> Ok[T] | Unavailable | Failed:
    """Run `read` and say how it went. `missing` explains a file that is not there, `help` what would make it readable."""
    at = time.time()
    started = time.perf_counter()
    try:
        value = read()
    except FileNotFoundError as error:
        return Unavailable(reason=missing or f"{error.filename} is not there", help=help)
    except PermissionError as error:
        return Unavailable(reason=f"{error.filename} may not be read", help=help or "sudo gpudiag doctor")
    except OSError as error:
        return Failed(error=str(error))
    except ValueError as error:
        return Failed(error=f"unexpected content: {error}")
    return Ok(value=value, at=at, took_s=round(time.perf_counter() - started, 6))
