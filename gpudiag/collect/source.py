"""The source code behind a frame, as the target's file system has it now.

Only the function that a frame is in is parsed, not its file: a scheduler of 5000 lines costs 0.1 s to parse, its
function a millisecond. What cannot be trusted to be the code that runs (a file changed after the process started, a
line outside the function) is refused with a reason.
"""

from __future__ import annotations

import ast
import io
import os
import re
import time
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpudiag.collect import procfs
from gpudiag.collect.target_files import open_regular

SIZE_LIMIT: Final = 4 << 20
WHOLE_FILE_LIMIT: Final = 64 << 10
"""Largest file, in bytes, that is parsed whole: for code outside any function, or where the function was not found."""

_SUFFIXES: Final = (".py", ".pyw")
_BLOCK_LIMIT: Final = 256 << 10
_CACHED_FILES: Final = 64
_STARTED_SLACK_S: Final = 0.1
"""A start time is known to a clock tick (10 ms), file times on coarse file systems to less."""
_CANDIDATES: Final = 8
_MAX_DECORATORS: Final = 40
"""Lines between the first line of a function and its `def`."""
_PARSE_BUDGET: Final = 2 << 20
"""Characters that one look parses for one process, about a second's worth: its source is as hostile as its memory."""

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why there is no source for a frame."""

    reason: str


@dataclass(frozen=True, slots=True)
class Function:
    """The parsed function of a frame: `enclosing` are the functions around it, outermost first."""

    node: Scope
    enclosing: tuple[FunctionNode, ...] = ()


@dataclass(slots=True)
class Block:
    """Lines of a file that hold one outermost function, or all of them for code of the module itself.

    `first` is the index of its first line in the file. Line numbers of the parsed tree are those of the file.
    """

    lines: list[str]
    first: int
    file: SourceFile
    name: str | None
    _tree: ast.Module | Unreadable | None = None

    @property
    def parsed(self) -> bool:
        return self._tree is not None

    @property
    def length(self) -> int:
        return sum(map(len, self.lines))

    def mentions(self, words: tuple[str, ...]) -> bool:
        """Whether one of the words is in the text."""
        text = "\n".join(self.lines)
        return any(word in text for word in words)

    def function(self, qualname: str, line: int) -> Function | Unreadable:
        """The function with this qualified name around this line, or why not."""
        tree = self._parsed()
        try:
            found = tree if isinstance(tree, Unreadable) else find_function(tree, qualname, line)
        except RecursionError:
            return Unreadable("the source is nested too deeply")
        if isinstance(found, Unreadable) and self.name is not None:
            return self.file.whole().function(qualname, line)
        return found

    def _parsed(self) -> ast.Module | Unreadable:
        if self._tree is None:
            self._tree = self._parse()
        return self._tree

    def _parse(self) -> ast.Module | Unreadable:
        if self.length > _BLOCK_LIMIT:
            return Unreadable("the source is too long to parse")
        lead = "\n" * self.first
        if self.first and self.lines[0][:1].isspace():
            # A method keeps its indentation, so that texts in it over several lines stay as they are.
            lead = "\n" * (self.first - 1) + "if 1:\n"
        try:
            return ast.parse(lead + "\n".join(self.lines) + "\n")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return Unreadable(f"the source does not parse: {type(error).__name__}")


@dataclass(slots=True)
class SourceFile:
    """The text of one file, in lines, and the blocks of it that were asked for."""

    lines: list[str]
    size: int
    _blocks: dict[tuple[int, str | None], Block] = field(default_factory=dict)

    def block(self, qualname: str, line: int) -> Block | Unreadable:
        """The block to look for a frame in."""
        if not 1 <= line <= len(self.lines):
            return Unreadable("the source has no such line")
        name = _outermost(qualname)
        if name is None:
            return self.whole() if qualname == "<module>" else Unreadable(f"no function is called {qualname[:100]!a}")
        for first in self._definitions(name, line):
            end = self._end(first)
            if end >= line:
                return self._block(first, end, name)
        return self.whole()

    def definition(self, qualname: str, line: int) -> int | None:
        """Line of the `def` of a function whose first line, a decorator perhaps, is `line`."""
        name = _outermost(qualname.rsplit(".", 1)[-1])
        if name is None or line < 1:
            return None
        for index in range(line - 1, min(line + _MAX_DECORATORS, len(self.lines))):
            if _defines(self.lines[index], name):
                return index + 1
        return None

    def whole(self) -> Block:
        """All of the file; too large a one does not parse."""
        if self.size > WHOLE_FILE_LIMIT:
            return Block([], 0, self, None, Unreadable("the file is too large to parse whole"))
        return self._block(0, len(self.lines), None)

    def _block(self, first: int, end: int, name: str | None) -> Block:
        return self._blocks.setdefault((first, name), Block(self.lines[first:end], first, self, name))

    def _definitions(self, name: str, line: int) -> Iterator[int]:
        """Indices of lines at or above `line` that define `name`, nearest first."""
        found = 0
        for index in range(line - 1, -1, -1):
            if _defines(self.lines[index], name):
                yield index
                found += 1
                if found == _CANDIDATES:
                    return

    def _end(self, first: int) -> int:
        """Index after the block that starts at line `first`: the next line that is not indented deeper."""
        indent = _indent(self.lines[first])
        for index in range(first + 1, len(self.lines)):
            text = self.lines[index].lstrip()
            # A closing bracket never starts a statement: it ends a signature or call over several lines.
            if text and text[0] not in "#)]}" and _indent(self.lines[index]) <= indent:
                return index
        return len(self.lines)


_cache: dict[tuple[int, int, int, int], SourceFile | Unreadable] = {}
"""By device, inode, mtime (ns) and size: two looks at one server, and ranks that share files, read each file once."""


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
        if key not in _cache:
            while len(_cache) >= _CACHED_FILES:
                del _cache[next(iter(_cache))]
            _cache[key] = _decode(_read(fd))
        return _cache[key]

    def _start_time(self) -> float:
        """Unix time at which the process started."""
        if self._started is None:
            ticks = procfs.parse_stat(procfs.read_once(f"/proc/{self._pid}/stat", procfs.STAT_LIMIT)).start_ticks
            boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            self._started = boot + ticks / os.sysconf("SC_CLK_TCK")
        return self._started


def find_function(tree: ast.Module, qualname: str, line: int) -> Function | Unreadable:
    """The function called `qualname` (as in __qualname__, or a tail of it) whose text holds `line`."""
    if qualname == "<module>":
        return Function(tree)
    depth = qualname.count(".<locals>.")
    path: list[FunctionNode] = []
    best: Function | None = None
    built = ""
    body: list[ast.stmt] = tree.body
    while (holder := _holder(body, line)) is not None:
        built = f"{built}.{holder.name}" if built else holder.name
        if not isinstance(holder, ast.ClassDef):
            if len(path) == depth and (qualname == built or qualname.endswith(f".{built}")):
                best = Function(holder, tuple(path))
            path.append(holder)
            built += ".<locals>"
        body = holder.body
    return best or Unreadable("the line is not inside the function: the source is not the code that runs")


def _holder(body: list[ast.stmt], line: int) -> FunctionNode | ast.ClassDef | None:
    """The outermost function or class below these statements that holds the line."""
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or 0):
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return statement
        for child in nested_bodies(statement):
            found = _holder(child, line)
            if found is not None:
                return found
    return None


def nested_bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement that belong to the same function."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block:
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _outermost(qualname: str) -> str | None:
    """Name of the outermost function: 'm' for 'A.m.<locals>.inner'; None for a lambda, a comprehension or the module."""
    if qualname.endswith(">"):
        return None
    name = qualname.split(".<locals>", 1)[0].rsplit(".", 1)[-1]
    return name if name.isidentifier() and len(qualname) < 1000 else None


def _defines(line: str, name: str) -> bool:
    return name in line and re.match(rf"[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b", line) is not None


def _indent(line: str) -> int:
    return len(line[: len(line) - len(line.lstrip())].expandtabs(8))


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
