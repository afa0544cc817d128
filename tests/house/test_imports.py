"""Who may import what, where import-linter cannot say it: packages that have one owner, and imports seen while running."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

OWNERS = {
    "psutil": {"collect"},
    "rich": {"render", "tui"},
    "textual": {"tui"},
    "click": {"cli"},
    "py_spy": set(),
    "torch": set(),
    "sglang": set(),
    "vllm": set(),
}
"""The parts of gpudiag that may import a package at all, even inside a function."""

PURE = ["model", "errors", "engines", "waits", "rules", "render"]
"""Functions of recorded data: they serve a live server, a recording and a unit test alike."""

MACHINE = {"psutil", "subprocess", "socket", "multiprocessing", "asyncio", "ctypes"}
"""Modules that reach for the machine or for other processes."""

FOREIGN = {"torch", "sglang", "vllm", "triton", "numpy"}

RECORD_IMPORTS = """
import importlib, json, pkgutil, sys
before = set(sys.modules)
for name in {names!r}:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        if found.name.rpartition(".")[2] not in ("__main__", "_build_hook"):
            importlib.import_module(found.name)
json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""


def imported_by(*names: str) -> set[str]:
    """Every module that a new interpreter has loaded after it imported these and all that they contain."""
    code = RECORD_IMPORTS.format(names=names)
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60)
    return set(json.loads(result.stdout))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The top-level name and the line of each import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_bytes(), path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0], node.lineno


@pytest.mark.parametrize("package", sorted(OWNERS))
def test_a_package_is_imported_by_its_owner_alone(package: str) -> None:
    importers = {
        f"{path.relative_to(ROOT)}:{line}": path.relative_to(ROOT / "gpudiag").parts[0]
        for path in sorted((ROOT / "gpudiag").rglob("*.py"))
        for name, line in imports(path)
        if name == package
    }
    assert {where for where, part in importers.items() if part not in OWNERS[package]} == set()


@pytest.mark.parametrize("part", PURE)
def test_what_is_pure_does_not_load_what_touches_the_machine(part: str) -> None:
    loaded = imported_by(f"gpudiag.{part}")
    assert f"gpudiag.{part}" in loaded
    assert not loaded & (MACHINE | FOREIGN | {"click", "textual", "rich"})
    assert not [name for name in loaded if name.startswith(("gpudiag.collect", "gpudiag.doctor", "gpudiag.cli"))]


def test_gpudiag_never_loads_torch_or_a_server() -> None:
    loaded = imported_by("gpudiag")
    assert "gpudiag.model.snapshot" in loaded
    assert not loaded & FOREIGN


def test_help_loads_neither_psutil_nor_anything_that_draws() -> None:
    code = (
        "import json, sys\n"
        "from gpudiag.cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "json.dump(sorted(sys.modules), sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=60)
    loaded = set(json.loads(result.stderr))
    assert "gpudiag.cli.main" in loaded
    assert not loaded & (FOREIGN | {"psutil", "rich", "textual", "msgspec", "asyncio", "multiprocessing"})
