"""What the guarded child is asked about flight recorders, and what it answers."""

from __future__ import annotations

from msgspec import Struct


class DumpsRequest(Struct, frozen=True, kw_only=True, tag="dumps"):
    """Which of `paths`, as the process `pid` sees them, are files, and when each was written."""

    pid: int
    paths: tuple[str, ...]


class Written(Struct, frozen=True, kw_only=True):
    """A file: when it was written (Unix time in nanoseconds) and its size."""

    at_ns: int
    size_bytes: int


class DumpsReply(Struct, frozen=True, kw_only=True, tag="dumps"):
    """Those of the paths that are regular files."""

    found: dict[str, Written]


class PipeRequest(Struct, frozen=True, kw_only=True, tag="pipe"):
    """Write into the named pipe that `pid` has open as descriptor `fd`: torch then dumps its flight recorder."""

    pid: int
    fd: int


class PipeReply(Struct, frozen=True, kw_only=True, tag="pipe"):
    """Empty if the process was asked, else why it could not be."""

    error: str = ""
