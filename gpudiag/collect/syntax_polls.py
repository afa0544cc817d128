"""What the source of a function says about files that it waits for: loops that ask again and again whether one exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gpudiag.collect.source import Scope
from gpudiag.collect.syntax_locks import statements_at, walk_scope

Until = Literal["exists", "gone"]

WORDS: Final = ("exists", "isfile", "is_file", "isdir", "is_dir", "access", "stat", "open", "mkdir")
"""One of these is in the text of every loop that `polls_at` finds."""

_PATH_QUESTIONS: Final = frozenset({"exists", "lexists", "isfile", "isdir"})
_OS_QUESTIONS: Final = frozenset({"access", "stat", "lstat"})
_METHOD_QUESTIONS: Final = frozenset({"exists", "is_file", "is_dir", "stat", "lstat"})
_RAISES_IF_MISSING: Final = frozenset({"stat", "lstat", "open"})
_RAISES_IF_PRESENT: Final = frozenset({"open", "mkdir", "makedirs"})
_MISSING: Final = frozenset({"FileNotFoundError"})
_PRESENT: Final = frozenset({"FileExistsError"})
_EITHER: Final = frozenset({"OSError", "IOError", "EnvironmentError"})


@dataclass(frozen=True, slots=True)
class Poll:
    """A question about a file that a loop repeats. `function` is None for a method of the path itself (`path.exists()`)."""

    path: ast.expr
    function: ast.expr | None
    until: Until


def polls_at(scope: Scope, line: int) -> tuple[Poll, ...]:
    """What the innermost `while` loop around `line` that waits for a file waits for; empty if none does."""
    loops = [statement for statement in statements_at(scope, line) if isinstance(statement, ast.While)]
    for loop in reversed(loops):
        found = tuple(_polls(loop))
        if found:
            return found
    return ()


def _polls(loop: ast.While) -> Iterator[Poll]:
    for path, function, positive in _questions(loop.test, positive=True):
        yield Poll(path, function, "gone" if positive else "exists")
    for statement in loop.body:
        yield from _ends_loop(statement)


def _ends_loop(statement: ast.stmt) -> Iterator[Poll]:
    """What a statement of the loop's body lets the loop end for."""
    if isinstance(statement, ast.If):
        for block, when in ((statement.body, True), (statement.orelse, False)):
            if _leaves(block):
                for path, function, positive in _questions(statement.test, positive=when):
                    yield Poll(path, function, "exists" if positive else "gone")
            else:
                for inner in block:
                    yield from _ends_loop(inner)
    elif isinstance(statement, ast.With):
        for inner in statement.body:
            yield from _ends_loop(inner)
    elif isinstance(statement, ast.Try):
        yield from _by_exception(statement)
        for inner in statement.body:
            yield from _ends_loop(inner)


def _by_exception(statement: ast.Try) -> Iterator[Poll]:
    """`try: os.stat(p) ... except FileNotFoundError: ...` and the like, where one way leaves the loop."""
    succeeds = _leaves(statement.body) or _leaves(statement.orelse)
    missing = [h for h in statement.handlers if _catches(h, _MISSING | _EITHER)]
    present = [h for h in statement.handlers if _catches(h, _PRESENT)]
    for call in _calls(statement.body):
        name = _called(call)
        if name in _RAISES_IF_PRESENT and succeeds and present and not any(_leaves(h.body) for h in present):
            yield from _poll(call, "gone")
        elif name in _RAISES_IF_MISSING and missing:
            leaves = any(_leaves(h.body) for h in missing)
            if succeeds != leaves:
                yield from _poll(call, "exists" if succeeds else "gone")


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    for statement in body:
        for node in walk_scope(statement):
            if isinstance(node, ast.Call):
                yield node


def _poll(call: ast.Call, until: Until) -> Iterator[Poll]:
    asked = _asked(call, _RAISES_IF_MISSING | _RAISES_IF_PRESENT)
    if asked is not None:
        yield Poll(asked[0], asked[1], until)


def _questions(test: ast.expr, *, positive: bool) -> Iterator[tuple[ast.expr, ast.expr | None, bool]]:
    """The files that a condition asks for: path, function, and whether existing makes for the condition being `positive`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _questions(test.operand, positive=not positive)
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _questions(value, positive=positive)
    elif isinstance(test, ast.Call):
        asked = _asked(test, _PATH_QUESTIONS | _OS_QUESTIONS)
        if asked is not None:
            yield *asked, positive


def _asked(call: ast.Call, names: frozenset[str]) -> tuple[ast.expr, ast.expr | None] | None:
    """(path, function) of a call about a file."""
    name = _called(call)
    if isinstance(call.func, ast.Attribute) and name in _METHOD_QUESTIONS and not call.args:
        return call.func.value, None
    if name in names and call.args and not isinstance(call.args[0], ast.Starred):
        return call.args[0], call.func
    return None


def _called(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def _catches(handler: ast.ExceptHandler, names: frozenset[str]) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in names for kind in kinds)


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Break | ast.Return)
