"""Opening logs: plain, .gz and .zst files, directories and streams, in blocks of whole lines and constant memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import select
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from msgspec import Struct

from gpudiag.logs.zstd import errors, open_zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES: Final = 1 << 20
MAX_LINE_BYTES: Final = 1 << 18
MAX_FILES: Final = 4096
WRITER_WAIT_S: Final = 3.0
"""So long a FIFO may be without anybody who writes to it."""

_KERNEL: Final = ("/proc", "/sys", "/sys/kernel/debug", "/sys/kernel/tracing")
"""File systems whose files the kernel makes up as they are read; some, /proc/kmsg and trace_pipe, never end."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_XZ: Final = b"\xfd7zXZ\x00"


class UnreadableError(Exception):
    """A source that could not be read: `reason`, and `help` with what to type."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help


class Tally(Struct):
    """What a stream came to: bytes of text, and lines that were too long to keep whole."""

    bytes: int = 0
    cut_lines: int = 0
    broken: str = ""
    """Why the stream ended early; what came before it counts."""


def refusal(status: os.stat_result) -> str:
    """Why a file of this kind is not read, because it is no log and may never end; empty if it is read."""
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        return "is a device"
    if stat.S_ISREG(status.st_mode) and status.st_dev in _made_up():
        return "is no file but a view of the kernel"
    return ""


def _made_up() -> set[int]:
    found = set()
    for folder in _KERNEL:
        with contextlib.suppress(OSError):
            if os.path.ismount(folder):
                found.add(os.stat(folder).st_dev)
    return found


def find_files(path: str) -> list[str]:
    """`path` itself, or the regular files under it in name order (links are not followed). Raises UnreadableError."""
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for folder, names, files in os.walk(path, onerror=None):
        names.sort()
        for name in sorted(files):
            full = os.path.join(folder, name)
            status = _status(full)
            if status is not None and stat.S_ISREG(status.st_mode) and not refusal(status):
                found.append(full)
            if len(found) >= MAX_FILES:
                return found
    return found


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


class _Fifo(io.FileIO):
    """A FIFO, opened without waiting. Reading it waits for data as long as somebody has it open for writing."""

    _met = False

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        if self._met:
            return super().readinto(buffer)
        self._met = True
        # Nothing is ready while a FIFO waits for its first writer; it is once that writer has written, or has gone.
        poll = select.poll()
        poll.register(self, select.POLLIN)
        ready = poll.poll(WRITER_WAIT_S * 1000)
        count = super().readinto(buffer)
        if count == 0 and not ready:
            raise UnreadableError(f"nobody writes to this FIFO (waited {WRITER_WAIT_S:g} s)")
        os.set_blocking(self.fileno(), True)
        return super().readinto(buffer) if count is None else count


def _open(path: str) -> io.BufferedReader:
    """Open without waiting for a writer and without letting a device act. Raises UnreadableError, OSError."""
    why = refusal(os.stat(path))
    if why:
        raise UnreadableError(why)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = _Fifo if stat.S_ISFIFO(os.fstat(handle).st_mode) else io.FileIO
    return io.BufferedReader(kind(handle), BLOCK_BYTES)


@contextmanager
def open_log(path: str) -> Iterator[IO[bytes]]:
    """Open a log for reading, decompressed if its first bytes say so. Raises UnreadableError."""
    try:
        raw = _open(path)
    except OSError as error:
        raise UnreadableError(f"cannot open: {error.strerror or error}", f"ls -l {path}") from None
    with raw:
        try:
            head = raw.peek(8)[:8]
        except OSError as error:
            raise UnreadableError(f"cannot read: {error.strerror or error}", f"ls -l {path}") from None
        yield unpacked(raw, head)


def unpacked(raw: IO[bytes], head: bytes) -> IO[bytes]:
    """`raw` through the decompressor that its first bytes ask for."""
    if head.startswith(_GZIP):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    if head.startswith(_XZ):
        return cast("IO[bytes]", lzma.LZMAFile(raw))
    if head.startswith(_ZSTD):
        stream = open_zstd(raw)
        if stream is None:
            raise UnreadableError("compressed with zstd, which this Python cannot read", "pip install 'gpudiag[zstd]'")
        return stream
    return raw


def is_text(path: str) -> bool:
    """Whether the first bytes of a file look like text (or compressed text), so that a model file beside a log is left alone."""
    try:
        with open(path, "rb") as handle:
            head = handle.read(4096)
    except OSError:
        return False
    if head.startswith((_GZIP, _ZSTD, _XZ)):
        return True
    return b"\x00" not in head


def blocks(stream: IO[bytes], tally: Tally) -> Iterator[bytes]:
    """Blocks that end with a line end. A line longer than MAX_LINE_BYTES is cut to it and counted in `tally`."""
    while chunk := _read(stream, tally, BLOCK_BYTES):
        tally.bytes += len(chunk)
        if chunk[-1:] == b"\n":
            yield chunk
            continue
        rest = _read(stream, tally, MAX_LINE_BYTES, line=True)
        tally.bytes += len(rest)
        if rest[-1:] != b"\n" and len(rest) == MAX_LINE_BYTES:
            tally.cut_lines += 1
            _skip_line(stream, tally)
        whole = chunk + rest
        yield whole if whole[-1:] == b"\n" else whole + b"\n"


def _skip_line(stream: IO[bytes], tally: Tally) -> None:
    """Read on to the end of a line that is too long to keep."""
    while rest := _read(stream, tally, BLOCK_BYTES, line=True):
        tally.bytes += len(rest)
        if rest[-1:] == b"\n":
            return


def _read(stream: IO[bytes], tally: Tally, size: int, *, line: bool = False) -> bytes:
    broken: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, lzma.LZMAError, *errors(sys.modules))
    try:
        # read1, where there is one: a read that fails half way through loses what it has got so far.
        return stream.readline(size) if line else getattr(stream, "read1", stream.read)(size)
    except broken as error:
        tally.broken = f"ends early: {error}"
    return b""


def name_of(path: str) -> str:
    """How a source is shown: its path as given."""
    return str(Path(path))
