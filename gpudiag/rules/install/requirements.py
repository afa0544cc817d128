"""Requirements as pyproject.toml writes them, as far as build requirements go: a name and comparisons of versions."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.install import Environment
from gpudiag.rules.preflight.words import version

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*([^;]*)")
_CLAUSE: Final = re.compile(r"(==|>=|<=|!=|~=|<|>)\s*([\w.*+]+)")


def unmet(requirement: str, environment: Environment) -> str | None:
    """Why a requirement is not met ('absent', 'installed is 2.13.0'); None if it is, or cannot be read."""
    found = _REQUIREMENT.match(requirement)
    if found is None:
        return None
    installed = environment.distribution(found[1])
    if installed is None:
        return "absent"
    clauses = _CLAUSE.findall(found[2])
    return None if all(_holds(installed.version, op, wanted) for op, wanted in clauses) else f"installed is {installed.version}"


def _holds(have_text: str, op: str, wanted_text: str) -> bool:
    have, wanted = version(have_text), version(wanted_text)
    size = max(len(have), len(wanted))
    a, b = have + (0,) * (size - len(have)), wanted + (0,) * (size - len(wanted))
    match op:
        case "==":
            return a[: len(wanted)] == wanted if wanted_text.endswith("*") else a == b
        case "!=":
            return a != b
        case ">=":
            return a >= b
        case "<=":
            return a <= b
        case "<":
            return a < b
        case ">":
            return a > b
        case _:
            return a >= b and a[: max(1, len(wanted) - 1)] == wanted[: max(1, len(wanted) - 1)]
