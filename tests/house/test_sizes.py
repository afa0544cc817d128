"""Small modules, small functions: what does not fit on a screen or two is two things."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkout import ROOT, project_files

MODULE_LINES = 500
FUNCTION_LINES = 60
LONG_FUNCTIONS: frozenset[str] = frozenset()
"""'path:name' of functions that are longer for a reason. There are none."""

PYTHON = [p for p in project_files() if p.suffix == ".py"]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length in lines of each function, decorators and docstring left out."""
    for node in ast.walk(ast.parse((ROOT / path).read_bytes(), path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            signature = node.body[0].lineno - node.lineno
            yield f"{path}:{node.name}", signature + (node.end_lineno or first.lineno) - first.lineno + 1


def test_no_module_is_too_long() -> None:
    lengths = {str(path): len((ROOT / path).read_bytes().splitlines()) for path in PYTHON}
    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {name: lines for path in PYTHON for name, lines in functions(path) if lines > FUNCTION_LINES}
    assert {name: lines for name, lines in long.items() if name not in LONG_FUNCTIONS} == {}
    assert long.keys() >= LONG_FUNCTIONS, "an exception that is no longer needed"
