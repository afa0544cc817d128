"""No modules import each other in a circle, imports for type checkers alone included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gpudiag.waits.graph import components
from tests.support.checkout import ROOT


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((ROOT / "gpudiag").rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """The modules of gpudiag that a file imports outside of functions."""
    tree = ast.parse(path.read_bytes(), path)
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    for statement in (n for n in ast.walk(tree) if id(n) not in inside):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                below = f"{statement.module}.{alias.name}"
                yield below if below in MODULES else statement.module


def test_no_circle() -> None:
    graph = {name: {m for m in imported(path) if m in MODULES and m != name} for name, path in MODULES.items()}
    assert graph["gpudiag.waits.context"] >= {"gpudiag.waits.communicators", "gpudiag.waits.gpus"}
    assert [c for c in components(graph) if len(c) > 1] == []
