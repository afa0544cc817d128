"""The source files of a process, opened safely, read once and refused where they may not be the code that runs."""

from __future__ import annotations

import io
import os
import time
import tokenize
from typing import Final

from gpudiag.collect import procfs
from gpudiag.collect.source import Function, SourceFile, Unreadable
from gpudiag.collect.target_files import open_regular

SIZE_LIMIT: Final = 4 << 20
_SUFFIXES: Final = (".py", ".pyw")
_PARSE_BUDGET: Final = 2 << 20
"""Characters that one look parses for one process, about a second's worth: its source is as hostile as its memory."""
_STARTED_SLACK_S: Final = 0.1
"""A start time is known to a clock tick (10 ms), file times on coarse file systems to less."""
_CACHED_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 16 << 10
"""What a file counts for at least, however small it is."""
"""Of text, which takes three times as much in lines. The stacks of a serving vLLM 0.32 lie in 0.6 MB."""

_cache: dict[tuple[int, int, int, int], SourceFile | Unreadable] = {}
"""By device, inode, mtime (ns) and size, the least recently used first: two looks at one server, and ranks that share files, read
each file once."""


class SourceFiles:
    """The source files of one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._files: dict[str, SourceFile | Unreadable] = {}
        self._started: float | None = None
        self._budget = _PARSE_BUDGET

    def function(self, path: str, qualname: str, line: int, *words: tuple[str, ...]) -> Function | Unreadable:
        """The parsed function of a frame, or why there is none.

        Each group of `words` has to be in the text with one of its words: the cheap question, before anything is parsed.
        Never raises: a target that is gone is a reason too.
        """
        file = self._file(path)
        block = file if isinstance(file, Unreadable) else file.block(qualname, line)
        if isinstance(block, Unreadable):
            return block
        if not all(block.mentions(group) for group in words):
            return Unreadable("nothing of interest in it")
        if not block.parsed:
            self._budget -= block.length
        return block.function(qualname, line) if self._budget >= 0 else Unreadable("too much source to parse")

    def definition(self, path: str, qualname: str, line: int) -> Function | Unreadable:
        """The parsed function whose code starts at `line`, or why there is none."""
        file = self._file(path)
        if isinstance(file, Unreadable):
            return file
        found = file.definition(qualname, line)
        return Unreadable("the function is not where it was") if found is None else self.function(path, qualname, found)

    def _file(self, path: str) -> SourceFile | Unreadable:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._open(path)
        return file

    def _open(self, path: str) -> SourceFile | Unreadable:
        if path.startswith("<") or not path.endswith(_SUFFIXES):
            return Unreadable("no source file")
        try:
            fd = open_regular(self._pid, path, _SUFFIXES)
        except OSError as error:
            return Unreadable(f"cannot open the source: {error.strerror}")
        try:
            return self._load(fd)
        except OSError as error:
            return Unreadable(f"cannot read the source: {error.strerror}")
        finally:
            os.close(fd)

    def _load(self, fd: int) -> SourceFile | Unreadable:
        status = os.fstat(fd)
        if status.st_mtime > self._start_time() + _STARTED_SLACK_S:
            return Unreadable("the source changed after the process started")
        if status.st_size > SIZE_LIMIT:
            return Unreadable(f"the source is larger than {SIZE_LIMIT >> 20} MiB")
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        file = _cache.pop(key, None)
        if file is None:
            file = _decode(_read(fd))
            while _cache and sum(max(size, _LEAST_BYTES) for *_, size in _cache) + status.st_size > _CACHED_BYTES:
                del _cache[next(iter(_cache))]
        _cache[key] = file
        return file

    def _start_time(self) -> float:
        """Unix time at which the process started."""
        if self._started is None:
            ticks = procfs.parse_stat(procfs.read_once(f"/proc/{self._pid}/stat", procfs.STAT_LIMIT)).start_ticks
            boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            self._started = boot + ticks / os.sysconf("SC_CLK_TCK")
        return self._started


def _read(fd: int) -> bytes:
    parts = []
    left = SIZE_LIMIT + 1
    while left > 0 and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decode(data: bytes) -> SourceFile | Unreadable:
    if len(data) > SIZE_LIMIT:
        return Unreadable(f"the source is larger than {SIZE_LIMIT >> 20} MiB")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return Unreadable("the source is not text")
    return SourceFile(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), len(data))
