"""Every parser gets damaged and deeply nested input in each run of the tests; `make fuzz` goes on for longer."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from tests.fuzz.damage import DEEP, SlowError, attack, feed
from tests.fuzz.parsers import PARSERS, Parser
from tests.support.checkout import ROOT, project_files

SECONDS = 0.4
NAMES = ("parse", "load", "decode")
ELSEWHERE = {
    "cli.doctor": "model.facts is what it decodes",
    "collect.flight_recorder_worker": "reads what load has accepted",
    "demo.scripts.kernels": "the demo's own files",
    "demo.scripts.settings": "the demo's own files",
    "model.decoding": "what the others use",
}
"""Modules with a function of such a name that reads nothing of others, or is covered by another entry."""


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
def test_damaged_input_raises_only_what_is_expected(parser: Parser) -> None:
    seed = time.time_ns()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        problem = attack(parser, seed)
        assert problem is None, f"python -m tests.fuzz --only {parser.name} --seed {seed}: {problem!r}"
        seed += 1


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
def test_deep_nesting_raises_only_what_is_expected(parser: Parser) -> None:
    for data in DEEP:
        assert feed(parser, data) is None, data[:10]


def test_a_parser_that_breaks_or_dawdles_is_noticed() -> None:
    def breaks(_: bytes) -> object:
        raise KeyError("x")

    def asks_for_all(_: bytes) -> object:
        return bytearray(1 << 34)

    assert isinstance(feed(Parser("x", breaks, (b"a",)), b""), KeyError)
    assert feed(Parser("x", breaks, (b"a",), (KeyError,)), b"") is None
    assert isinstance(feed(Parser("x", asks_for_all, (b"a",)), b""), MemoryError)
    assert issubclass(SlowError, Exception)


def test_every_parser_is_listed() -> None:
    """Functions called parse..., load..., decode... that take bytes, text or a path."""
    listed = {parser.name.rpartition(".")[0] for parser in PARSERS}
    missing: list[str] = []
    for path in (ROOT / file for file in project_files() if file.parts[0] == "gpudiag" and file.suffix == ".py"):
        module = ".".join(path.relative_to(ROOT / "gpudiag").with_suffix("").parts)
        for node in ast.parse(path.read_bytes()).body:
            if not isinstance(node, ast.FunctionDef) or module in listed | ELSEWHERE.keys():
                continue
            if node.name.split("_")[0] in NAMES and _takes_input(node):
                missing.append(f"{module}.{node.name}")
    assert not missing, "add them to tests/fuzz/parsers.py"


def _takes_input(function: ast.FunctionDef) -> bool:
    kinds = [ast.unparse(a.annotation) for a in function.args.args[:1] if a.annotation]
    return bool(kinds) and any(word in kinds[0] for word in ("bytes", "str", Path.__name__))
