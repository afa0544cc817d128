"""What the source of a function says about locks: which it holds at a line, and which it acquires there.

Held is decided on the safe side: a lock counts only where every way to the line holds it, as far as the text can tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpudiag.collect.source import Scope, nested_bodies

ACQUIRE: Final = frozenset({"acquire", "acquire_lock", "__enter__", "_acquire_restore"})
"""Methods that block until the lock is theirs; the last is how threading.Condition.wait takes its lock back."""
RELEASE: Final = frozenset({"release", "release_lock", "__exit__"})


@dataclass(frozen=True, slots=True)
class Taken:
    """An expression whose lock is held, by `with` or by a call of `acquire`."""

    lock: ast.expr
    by_with: bool


@dataclass(frozen=True, slots=True)
class Acquire:
    """An expression whose lock is acquired; `entered` are the earlier items of the same `with`, held by then."""

    lock: ast.expr
    entered: tuple[ast.expr, ...] = ()


_NESTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def acquire_at(scope: Scope, line: int) -> tuple[Acquire, ...]:
    """The acquisitions that may be going on at `line`, in the order in which they would be."""
    found: list[Acquire] = []
    for statement in statements_at(scope, line):
        if isinstance(statement, ast.With):
            items = tuple(item.context_expr for item in statement.items)
            # While an item is entered, the frame is at the line of the statement up to CPython 3.12, later at the item's.
            found += [Acquire(x, items[:i]) for i, x in enumerate(items) if statement.lineno == line or _spans(x, line)]
        found += [Acquire(lock) for head in _own_expressions(statement) for lock in _acquires(head, line)]
    return tuple(found)


def held_at(scope: Scope, line: int) -> tuple[Taken, ...]:
    """What the function holds at `line`, in the order in which it was taken.

    That is what `with` statements around the line entered and what `X.acquire()` took on the way to it, unless something
    on that way releases it or makes X another object. In the head of a `with` of several items those on earlier lines
    are entered; one on the line itself may not be.
    """
    held: dict[str, Taken] = {}
    _follow(scope.body, line, held)
    return tuple(held.values())


def held_at_end(scope: Scope) -> tuple[Taken, ...]:
    """What the function holds when it returns from its end: what an `__enter__` or `acquire` of a class takes."""
    held: dict[str, Taken] = {}
    for statement in scope.body:
        _apply(statement, held)
        if isinstance(statement, ast.Return) and statement.value:
            _take(_acquire_call(statement.value), held)
    return tuple(held.values())


def held_at_yield(scope: Scope) -> tuple[Taken, ...]:
    """What a generator with a single `yield` holds there: what a `@contextmanager` function takes."""
    yields = [node.lineno for statement in scope.body for node in walk_scope(statement) if isinstance(node, ast.Yield)]
    return held_at(scope, yields[0]) if len(yields) == 1 else ()


def statements_at(scope: Scope, line: int) -> Iterator[ast.stmt]:
    """The statements of the function that hold the line, outermost first."""
    body: list[ast.stmt] | None = scope.body
    while body:
        statement = _statement_at(body, line)
        if statement is None or isinstance(statement, _NESTED):
            return
        yield statement
        body = next((b for b in nested_bodies(statement) if _statement_at(b, line)), None)


def _statement_at(body: list[ast.stmt], line: int) -> ast.stmt | None:
    return next((s for s in body if s.lineno <= line <= (s.end_lineno or 0)), None)


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions that run as part of the statement itself, not of a statement inside it."""
    if isinstance(statement, ast.With):
        yield from (item.context_expr for item in statement.items)
        return
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield child


def _acquires(expression: ast.expr, line: int) -> Iterator[ast.expr]:
    for node in walk_scope(expression):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ACQUIRE
            and _spans(node, line)
        ):
            yield node.func.value


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Like ast.walk, but stays in this function."""
    if isinstance(node, _NESTED):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk_scope(child)


def _spans(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _follow(body: list[ast.stmt], line: int, held: dict[str, Taken]) -> None:
    """Apply to `held` what the statements before `line` do, then enter the one that holds the line."""
    for statement in body:
        if statement.lineno <= line <= (statement.end_lineno or 0):
            if not isinstance(statement, _NESTED):
                _enter(statement, line, held)
            return
        if statement.lineno > line:
            return
        _apply(statement, held)


def _apply(statement: ast.stmt, held: dict[str, Taken]) -> None:
    """The effect of a whole statement that ran: what it may release or rebind is gone, what it surely acquires is held."""
    _drop_released(statement, held)
    _take(_taken_after(statement), held)


def _take(lock: ast.expr | None, held: dict[str, Taken], *, by_with: bool = False) -> None:
    if lock is not None:
        held[ast.unparse(lock)] = Taken(lock, by_with)


def _taken_after(statement: ast.stmt) -> ast.expr | None:
    """X after `X.acquire()`, after `while not X.acquire(...): ...` and after `if not X.acquire(...): return`."""
    if isinstance(statement, ast.Expr | ast.Assign):
        return _acquire_call(statement.value) if _waits_forever(statement.value) else None
    if not isinstance(statement, ast.While | ast.If):
        return None
    test = statement.test
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
        return None
    if isinstance(statement, ast.If) and not isinstance(statement.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
        return None
    if isinstance(statement, ast.While) and any(isinstance(inner, ast.Break) for inner in walk_scope(statement)):
        return None
    return _acquire_call(test.operand)


def _enter(statement: ast.stmt, line: int, held: dict[str, Taken]) -> None:
    if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        # The line may run for the second time, after everything in the loop.
        _drop_released(statement, held)
    if isinstance(statement, ast.With):
        _enter_with(statement, line, held)
    block = next((b for b in nested_bodies(statement) if _statement_at(b, line)), None)
    if isinstance(statement, ast.Try | ast.TryStar):
        _before_block(statement, block, held)
    if isinstance(statement, ast.If) and block is statement.body:
        _take(_acquire_call(statement.test), held)
    if block is not None:
        _follow(block, line, held)


def _enter_with(statement: ast.With, line: int, held: dict[str, Taken]) -> None:
    in_body = statement.body[0].lineno <= line
    for item in statement.items:
        # The same line stands for entering and for leaving; items are left last first, so earlier ones are held either way.
        if in_body or (item.context_expr.end_lineno or 0) < line:
            _take(item.context_expr, held, by_with=True)


def _before_block(statement: ast.Try | ast.TryStar, block: list[ast.stmt] | None, held: dict[str, Taken]) -> None:
    if block is statement.body:
        return
    if block is statement.orelse:
        for inner in statement.body:
            _apply(inner, held)
        return
    # In a handler, in finally or on the line of an `except` nobody knows how far the blocks before came.
    before = [*statement.body]
    if block is statement.finalbody:
        before += [s for handler in statement.handlers for s in handler.body] + statement.orelse
    for inner in before:
        _drop_released(inner, held)


def _acquire_call(expression: ast.AST) -> ast.expr | None:
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute) and expression.func.attr in ACQUIRE:
        return expression.func.value
    return None


def _waits_forever(call: ast.expr) -> bool:
    """Whether the result of the call may be ignored: no timeout and not `blocking=False`."""
    if not isinstance(call, ast.Call):
        return False
    values = [*call.args, *(k.value for k in call.keywords)]
    return all(isinstance(v, ast.Constant) and v.value is True for v in values)


def _drop_released(statement: ast.stmt, held: dict[str, Taken]) -> None:
    if not held:
        return
    for node in walk_scope(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RELEASE:
            held.pop(ast.unparse(node.func.value), None)
        elif isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound = ast.unparse(node)
            for text in [t for t in held if t == bound or t.startswith((f"{bound}.", f"{bound}["))]:
                del held[text]
