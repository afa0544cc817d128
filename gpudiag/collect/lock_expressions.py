"""The locks behind the expression of a `with` or an `acquire()`: itself, or what it takes where a program wraps its locks.

A wrapper is a class with its own `__enter__` or `acquire`, or a function with `@contextlib.contextmanager`. Which locks
it takes is read from its source, like those of a frame; which objects they are, from the wrapper's attributes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from gpudiag.collect.expressions import Expressions, Place
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pylock import PyLock, lock_behind
from gpudiag.collect.pyobject import PyFunction
from gpudiag.collect.source import Function, Scope, Unreadable
from gpudiag.collect.source_files import SourceFiles
from gpudiag.collect.syntax_locks import Taken, held_at_end, held_at_yield
from gpudiag.model.stack import Frame, PyStack

_MAX_DEPTH: Final = 3
_CONTEXT_MANAGER: Final = "contextmanager.<locals>.helper"
"""What @contextlib.contextmanager makes of a function, with that function in its closure (Lib/contextlib.py)."""


class LockExpressions:
    """Finds the locks of one process."""

    def __init__(self, expressions: Expressions, sources: SourceFiles, memory: TargetMemory) -> None:
        self._expressions = expressions
        self._objects = expressions.objects
        self._sources = sources
        self._memory = memory

    def plain(self, expression: ast.expr, place: Place) -> PyLock | None:
        """The lock that an expression is, if it is one of the standard library's."""
        address = self._expressions.address(expression, place)
        return None if address is None else lock_behind(self._objects, self._memory, address)

    def behind(self, taken: Taken, place: Place, depth: int = 0) -> Iterator[PyLock]:
        """The locks that are held after `with X:` or `X.acquire()`."""
        if isinstance(taken.lock, ast.Call) and taken.by_with:
            yield from self._manager(taken.lock, place, depth)
            return
        address = self._expressions.address(taken.lock, place)
        if address is None:
            return
        lock = lock_behind(self._objects, self._memory, address)
        if lock is not None:
            yield lock
            return
        method = "__enter__" if taken.by_with else "acquire"
        for entry in (self._objects.class_entries(address, method) or ())[:1]:
            function = self._objects.function(entry)
            if function is not None:
                yield from self._inside(function, (address,), held_at_end, depth)

    def _manager(self, call: ast.Call, place: Place, depth: int) -> Iterator[PyLock]:
        """Locks of `with manager(...):` where `manager` is a generator function or method."""
        function, bound = self._called(call, place)
        if function is None or function.qualname != _CONTEXT_MANAGER or not function.file.endswith("/contextlib.py"):
            return
        cell = function.closure.get("func")
        inner = self._objects.cell_value(cell) if cell is not None else None
        generator = self._objects.function(inner) if inner is not None else None
        if generator is not None:
            arguments = [self._expressions.address(argument, place) for argument in call.args]
            yield from self._inside(generator, (*bound, *arguments), held_at_yield, depth)

    def _called(self, call: ast.Call, place: Place) -> tuple[PyFunction | None, tuple[int, ...]]:
        """The function that a call calls, and its `self`."""
        address = self._expressions.address(call.func, place)
        if address is not None:
            return self._objects.function(address), ()
        if isinstance(call.func, ast.Attribute):
            base = self._expressions.address(call.func.value, place)
            for entry in (self._objects.class_entries(base, call.func.attr) or ())[:1] if base is not None else ():
                return self._objects.function(entry), (base,) if base is not None else ()
        return None, ()

    def _inside(
        self,
        function: PyFunction,
        arguments: tuple[int | None, ...],
        held: Callable[[Scope], tuple[Taken, ...]],
        depth: int,
    ) -> Iterator[PyLock]:
        """The locks that `held` finds in a function that was called with these positional arguments."""
        source = self._sources.definition(function.file, function.qualname, function.line)
        if depth >= _MAX_DEPTH or isinstance(source, Unreadable) or isinstance(source.node, ast.Module):
            return
        parameters = [*source.node.args.posonlyargs, *source.node.args.args]
        given = {p.arg: a for p, a in zip(parameters, arguments, strict=False) if a is not None}
        place = _call_of(function, source, given)
        try:
            inner = held(source.node)
        except RecursionError:
            return
        for taken in inner:
            yield from self.behind(taken, place, depth + 1)


def _call_of(function: PyFunction, source: Function, arguments: dict[str, int]) -> Place:
    """A frame as the function has it when it has just been called."""
    frame = Frame(function=function.qualname, file=function.file, line=function.line, locals=arguments)
    return Place(PyStack(tid=0, name=None, ident=0, active=False, owns_gil=False, frames=(frame,)), 0, source, function)
