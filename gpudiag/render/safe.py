"""A report in which no string can do harm. Every renderer for people starts with it."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudiag.model.report import Report
from gpudiag.render.plain import ascii_only, clean

_MANY_LINES = frozenset({"excerpt"})
_MAX_EXCERPT_LINES = 40


def safe(report: Report, *, plain: bool = False) -> Report:
    """The report with every string cleaned, whatever field it is in. Excerpts keep their line ends. `plain`: ASCII only."""
    return msgspec.convert(_walk(msgspec.to_builtins(report), "", plain), Report)


def _walk(node: Any, field: str, plain: bool) -> Any:
    if isinstance(node, str):
        lines = node.splitlines()[:_MAX_EXCERPT_LINES] if field in _MANY_LINES else [node]
        cleaned = "\n".join(clean(line.expandtabs(4) if field in _MANY_LINES else line) for line in lines)
        return ascii_only(cleaned) if plain else cleaned
    if isinstance(node, dict):
        return {key: _walk(item, key, plain) for key, item in node.items()}
    if isinstance(node, list | tuple):
        return [_walk(item, field, plain) for item in node]
    return node
