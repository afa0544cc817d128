"""The function behind a frame, found in the text of its file.

Only the function that a frame is in is parsed, not its file: a scheduler of 5000 lines costs 0.1 s to parse, its
function a millisecond. A line outside the function that it should be in is refused: then the text is not the code that
runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

WHOLE_FILE_LIMIT: Final = 64 << 10
"""Largest file, in bytes, that is parsed whole: for code outside any function, or where the function was not found."""

_BLOCK_LIMIT: Final = 256 << 10
_CANDIDATES: Final = 8
_MOST_FOUND: Final = 1024
_MAX_DECORATORS: Final = 40
"""Lines between the first line of a function and its `def`."""

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
    _text: str = ""
    _found: dict[tuple[str, int], Function | Unreadable] = field(default_factory=dict)

    @property
    def parsed(self) -> bool:
        return self._tree is not None

    @property
    def length(self) -> int:
        return sum(map(len, self.lines))

    def mentions(self, words: tuple[str, ...]) -> bool:
        """Whether one of the words is in the text."""
        self._text = self._text or "\n".join(self.lines)
        return any(word in self._text for word in words)

    def function(self, qualname: str, line: int) -> Function | Unreadable:
        """The function with this qualified name around this line, or why not: the same object each time."""
        if (qualname, line) not in self._found:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[qualname, line] = self._find(qualname, line)
        return self._found[qualname, line]

    def _find(self, qualname: str, line: int) -> Function | Unreadable:
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
