"""What an expression in a frame's source refers to, as the address of an object in the target.

Only names, attributes and items by constant or by a plain variable: anything that would run code of the target has no
answer.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final, Literal

from gpudiag.collect.pyglobals import Globals
from gpudiag.collect.pyobject import PyFunction, PyObjects
from gpudiag.collect.source import Function, FunctionNode
from gpudiag.collect.syntax_locks import walk_scope
from gpudiag.model.stack import Frame, PyStack

_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Frame `index` of a stack, the parsed function that it runs, and the function object where that is known."""

    stack: PyStack
    index: int
    function: Function
    known: PyFunction | None = None

    @property
    def frame(self) -> Frame:
        return self.stack.frames[self.index]


class Expressions:
    """Evaluates expressions in the frames of one process."""

    def __init__(self, objects: PyObjects, stacks: tuple[PyStack, ...]) -> None:
        self.objects: Final = objects
        self._globals = Globals(objects, stacks)
        self._bound: dict[int, tuple[FunctionNode, frozenset[str]]] = {}

    def address(self, expression: ast.expr, place: Place, depth: int = 0) -> int | None:
        """Address of the object, or None if it cannot be known."""
        if depth > _MAX_DEPTH:
            return None
        if isinstance(expression, ast.Name):
            return self._name(expression.id, place)
        if isinstance(expression, ast.NamedExpr):
            return self.address(expression.value, place, depth + 1)
        if isinstance(expression, ast.Attribute):
            base = self.address(expression.value, place, depth + 1)
            return None if base is None else self.objects.attribute(base, _mangled(expression.attr, place.frame.function))
        if isinstance(expression, ast.Subscript):
            base = self.address(expression.value, place, depth + 1)
            key = self._key(expression.slice, place, depth + 1)
            return None if base is None or key is None else self.objects.item(base, key)
        return None

    def _key(self, expression: ast.expr, place: Place, depth: int) -> int | str | None:
        if isinstance(expression, ast.Constant):
            value = expression.value
            return value if isinstance(value, int | str) else None
        if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
            positive = self._key(expression.operand, place, depth)
            return -positive if isinstance(positive, int) else None
        address = self.address(expression, place, depth)
        if address is None:
            return None
        number = self.objects.integer(address)
        return self.objects.text(address) if number is None else number

    def _name(self, name: str, place: Place) -> int | None:
        local = place.frame.locals.get(name)
        if local is not None:
            return self.objects.cell_value(local)
        kind = self._binding(name, place.function)
        if kind == "free":
            closure = place.known.closure if place.known else self._globals.closure(place.stack, place.index)
            cell = (closure or {}).get(name)
            return None if cell is None else self.objects.cell_value(cell)
        if kind == "local":
            return None
        namespace = place.known.globals if place.known else self._globals.of(place.stack, place.index)
        return None if namespace is None else self.objects.item(namespace, name)

    def _binding(self, name: str, function: Function) -> Literal["local", "free", "global"]:
        if isinstance(function.node, ast.Module):
            return "global"
        if name in self._names(function.node):
            return "local"
        return "free" if any(name in self._names(outer) for outer in function.enclosing) else "global"

    def _names(self, node: FunctionNode) -> frozenset[str]:
        """Names that a function binds. A name that only a comprehension in it binds counts too: better none than a wrong one."""
        if id(node) not in self._bound:
            self._bound[id(node)] = node, _bound_names(node)
        return self._bound[id(node)][1]


def _bound_names(node: FunctionNode) -> frozenset[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    bound = {argument.arg for argument in named if argument}
    outside: set[str] = set()
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(statement.name)
        for inner in walk_scope(statement):
            if isinstance(inner, ast.Global | ast.Nonlocal):
                outside.update(inner.names)
            else:
                bound.update(_binds(inner))
    return frozenset(bound - outside)


def _binds(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return tuple((alias.asname or alias.name).split(".", 1)[0] for alias in node.names)
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return (node.name,) if node.name else ()
    if isinstance(node, ast.MatchMapping):
        return (node.rest,) if node.rest else ()
    return tuple(
        child.name
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def _mangled(name: str, qualname: str) -> str:
    """A private name as it is stored: `__lock` in a method of class Pool is `_Pool__lock`."""
    if not name.startswith("__") or name.endswith("__"):
        return name
    for part in reversed(qualname.split(".<locals>.")):
        classes = part.split(".")[:-1]
        if classes:
            return f"_{classes[-1].lstrip('_')}{name}"
    return name
