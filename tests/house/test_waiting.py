"""Tests wait for something that happens, never for time to pass: what takes half a second here takes five on a busy machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkout import ROOT, project_files

TESTS = [p for p in project_files() if p.parts[0] == "tests" and p.suffix == ".py" and "programs" not in p.parts]
"""All but programs that are looked at: those sleep because that is what is wrong with them."""

ALLOWED = {
    "tests/faults/live.py:grow_old": "a request has to be that old before anybody may call it unanswered",
    "tests/recordings/make.py:main": "the same",
    "tests/gpu/launch.py:look_at_screens": "a person who looks on for that long",
    "tests/gpu/launch.py:share_of_a_core": "a measurement over that time",
    "tests/gpu/launch.py:_rate": "a measurement over that time",
    "tests/gpu/serve.py:kill": "between two looks of another process, the first of which nothing tells",
    "tests/gpu/test_scenarios.py:enter": "a kernel that spins on a GPU tells nothing",
    "tests/harm/serving.py:leg": "a measurement over that time",
}
"""'path:function' of each other sleep, and what it is that only time can bring."""


def is_sleep(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return isinstance(node.func, ast.Attribute | ast.Name) and ast.unparse(node.func).rpartition(".")[2] == "sleep"


def sleeps(node: ast.AST, function: str = "", *, polls: bool = False) -> Iterator[str]:
    """Functions with a sleep that is not the pause of a loop which ends when something was seen."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from sleeps(child, getattr(child, "name", function))
        elif isinstance(child, ast.While):
            yield from sleeps(child, function, polls=any(map(can_end, ast.walk(child))) or not is_constant(child.test))
        elif is_sleep(child) and not polls:
            yield function
        else:
            yield from sleeps(child, function, polls=polls)


def can_end(node: ast.AST) -> bool:
    return isinstance(node, ast.Return | ast.Break)


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def found(path: Path) -> set[str]:
    return {f"{path}:{name}" for name in sleeps(ast.parse((ROOT / path).read_bytes(), str(path)))}


def test_no_test_waits_for_time_to_pass() -> None:
    all_of_them = {name for path in TESTS for name in found(path)}
    assert all_of_them - ALLOWED.keys() == set(), "wait for what is to happen: wait_until of tests/support/processes.py"
    assert ALLOWED.keys() - all_of_them == set(), "an exception that is no longer needed"


def test_a_sleep_is_told_from_a_poll() -> None:
    code = """
def waits(): time.sleep(3)
def loops(n):
    for _ in range(n): sleep(1)
def hangs():
    while True: time.sleep(1)
def polls():
    while not seen(): time.sleep(0.01)
def looks():
    while True:
        if seen(): return
        time.sleep(0.01)
"""
    assert list(sleeps(ast.parse(code))) == ["waits", "loops", "hangs"]
