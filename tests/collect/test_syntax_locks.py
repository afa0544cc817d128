"""What the source says about locks, decided on the text alone.

In each example a comment marks the line to ask for: `# @ a, b` lists the expressions that are held there.
"""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

from gpudiag.collect.source import Function, find_function
from gpudiag.collect.syntax_locks import acquire_at, held_at, held_at_end, held_at_yield


def function(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    tree = ast.parse(textwrap.dedent(text))
    first = tree.body[0]
    assert isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef)
    found = find_function(tree, first.name, first.body[-1].lineno)
    assert isinstance(found, Function)
    assert found.node is first
    return first


def marks(text: str, sign: str) -> dict[int, list[str]]:
    lines = textwrap.dedent(text).split("\n")
    found = {i: re.search(rf"# {sign}(.*)", line) for i, line in enumerate(lines, 1)}
    return {i: [part.strip() for part in match[1].split(",") if part.strip()] for i, match in found.items() if match}


HELD = {
    "with": """
        def f():
            before()  # @
            with a:
                inside()  # @ a
                with b, self.c:
                    deep()  # @ a, b, self.c
                after_b()  # @ a
            after()  # @
    """,
    "with over several lines": """
        def f():
            with (
                a,  # @
                b(),  # @ a
                c,  # @ a, b()
            ):
                inside()  # @ a, b(), c
    """,
    "with inside other statements": """
        def f():
            for x in y:
                if x:
                    with a:
                        try:
                            one()  # @ a
                        except E:
                            two()  # @ a
                        else:
                            three()  # @ a
                        finally:
                            four()  # @ a
                else:
                    five()  # @
            match z:
                case 1:
                    with b:
                        six()  # @ b
    """,
    "a function inside is another one": """
        def f():
            with a:
                def g():
                    inner()  # @ a
                g()  # @ a
    """,
    "an async with is no thread lock": """
        async def f():
            async with a:
                inside()  # @
    """,
    "acquire and release": """
        def f():
            a.acquire()
            one()  # @ a
            self.b.acquire(True)
            two()  # @ a, self.b
            a.release()
            three()  # @ self.b
            self.b.release()
            four()  # @
    """,
    "acquire, try, finally": """
        def f():
            a.acquire()
            try:
                one()  # @ a
                two()  # @ a
            except E:
                three()  # @ a
            finally:
                four()  # @ a
                a.release()
                five()  # @
            six()  # @
    """,
    "acquire inside try": """
        def f():
            try:
                a.acquire()
                one()  # @ a
            except E:
                two()  # @
            else:
                three()  # @ a
            finally:
                four()  # @
            five()  # @
    """,
    "release somewhere in a try is believed": """
        def f():
            a.acquire()
            try:
                if x:
                    a.release()
                    raise E
            except E:
                one()  # @
            two()  # @
    """,
    "acquire that may fail": """
        def f():
            a.acquire(False)
            b.acquire(blocking=False)
            c.acquire(timeout=3)
            d.acquire(block)
            one()  # @
    """,
    "acquire whose result is kept": """
        def f():
            ok = a.acquire()
            maybe = b.acquire(timeout=1)
            one()  # @ a
    """,
    "acquire as a condition": """
        def f():
            if a.acquire(timeout=1):
                one()  # @ a
            else:
                two()  # @
            if not b.acquire(timeout=1):
                three()  # @
                return
            four()  # @ b
            if not c.acquire(timeout=1):
                log()
            five()  # @ b
            while not d.acquire(timeout=1):
                six()  # @ b
            seven()  # @ b, d
            while not e.acquire(timeout=1):
                if x:
                    break
            eight()  # @ b, d
    """,
    "acquire in a branch": """
        def f():
            if x:
                a.acquire()
            one()  # @
    """,
    "release in a branch": """
        def f():
            a.acquire()
            if x:
                a.release()
            one()  # @
    """,
    "acquire in a loop": """
        def f():
            while True:
                one()  # @
                a.acquire()
                two()  # @ a
                a.release()
                three()  # @
    """,
    "acquired before a loop that releases": """
        def f():
            a.acquire()
            while True:
                one()  # @
                a.release()
    """,
    "acquired before a loop that does not": """
        def f():
            a.acquire()
            for x in y:
                one()  # @ a
            two()  # @ a
            a.release()
    """,
    "a name that means another lock by now": """
        def f():
            lock = x
            lock.acquire()
            self.b.acquire()
            items[0].acquire()
            one()  # @ lock, self.b, items[0]
            lock = y
            self.b = z
            items = w
            two()  # @
    """,
    "a loop variable": """
        def f():
            for lock in locks:
                lock.acquire()
                one()  # @ lock
            two()  # @
    """,
    "other methods called release": """
        def f():
            a.acquire()
            b.release()
            one()  # @ a
    """,
    "a with that lets go for a while": """
        def f():
            with a, b:
                one()  # @ a, b
                a.release()
                try:
                    two()  # @ b
                finally:
                    a.acquire()
                three()  # @ b
    """,
    "a with whose name means another lock by now": """
        def f():
            with self.a:
                self.a = x
                one()  # @
    """,
    "a loop that lets go of what is around it": """
        def f():
            with a:
                while x:
                    one()  # @
                    a.release()
                    a.acquire()
                two()  # @
    """,
    "the line of an except": """
        def f():
            a.acquire()
            try:
                one()  # @ a
                a.release()
            except E():  # @
                two()  # @
    """,
    "acquired twice": """
        def f():
            a.acquire()
            with a:
                one()  # @ a
    """,
    "a function inside that releases is not called here": """
        def f():
            a.acquire()
            def g():
                a.release()
            one()  # @ a
    """,
}


@pytest.mark.parametrize("name", sorted(HELD))
def test_held(name: str) -> None:
    node = function(HELD[name])
    expected = marks(HELD[name], "@")
    assert expected
    found = {line: [ast.unparse(taken.lock) for taken in held_at(node, line)] for line in expected}
    assert found == expected


ACQUIRED = {
    "with": """
        def f():
            with a:  # > a
                pass  # >
            with a, b:  # > a, b
                with c:  # > c
                    x()  # >
    """,
    "with over several lines": """
        def f():
            with (  # > a, b
                a,  # > a
                b  # > b
            ):
                pass  # >
    """,
    "acquire": """
        def f():
            a.acquire()  # > a
            self.b[0].acquire(timeout=1)  # > self.b[0]
            ok = c.acquire(  # > c
                True  # > c
            )
            if d.acquire() and e.acquire_lock():  # > d, e
                x()  # >
            return f.__enter__()  # > f
    """,
    "in other statements": """
        def f():
            while not a.acquire(timeout=1):  # > a
                b.acquire()  # > b
            for x in y(c.acquire()):  # > c
                pass
            with d(e.acquire()):  # > d(e.acquire()), e
                pass
            assert g.acquire()  # > g
    """,
    "not in a function inside": """
        def f():
            g = lambda: a.acquire()  # >
            h(x for x in y if b.acquire())  # > b
    """,
    "the lock of a condition is taken back": """
        def wait(self):
            self._acquire_restore(x)  # > self
    """,
}


@pytest.mark.parametrize("name", sorted(ACQUIRED))
def test_acquired(name: str) -> None:
    node = function(ACQUIRED[name])
    expected = marks(ACQUIRED[name], ">")
    assert expected
    assert {line: [ast.unparse(a.lock) for a in acquire_at(node, line)] for line in expected} == expected


def test_the_items_before_one_are_entered_when_it_is_acquired() -> None:
    node = function("def f():\n    with a, b, c:\n        pass\n")
    entered = {ast.unparse(a.lock): [ast.unparse(e) for e in a.entered] for a in acquire_at(node, 2)}
    assert entered == {"a": [], "b": ["a"], "c": ["a", "b"]}


@pytest.mark.parametrize(
    ("body", "held"),
    [
        ("self._inner.acquire()\n    return self", ["self._inner"]),
        ("return self._inner.acquire(blocking, timeout)", ["self._inner"]),
        ("return self._inner.__enter__()", ["self._inner"]),
        ("self.count += 1", []),
        ("a.acquire()\n    b.acquire()\n    a.release()", ["b"]),
        ("with a:\n        pass", []),
    ],
)
def test_held_at_the_end(body: str, held: list[str]) -> None:
    assert [ast.unparse(taken.lock) for taken in held_at_end(function(f"def f(self):\n    {body}\n"))] == held


@pytest.mark.parametrize(
    ("body", "held"),
    [
        ("with a, self.b:\n        yield", ["a", "self.b"]),
        ("a.acquire()\n    try:\n        x = yield 1\n    finally:\n        a.release()", ["a"]),
        ("yield\n    with a:\n        pass", []),
        ("if x:\n        yield\n    else:\n        with a:\n            yield", []),
        ("with a:\n        pass", []),
    ],
)
def test_held_at_the_yield(body: str, held: list[str]) -> None:
    assert [ast.unparse(taken.lock) for taken in held_at_yield(function(f"def f(self):\n    {body}\n"))] == held
