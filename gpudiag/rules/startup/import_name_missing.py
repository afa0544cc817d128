"""GPD205: a module exists but lacks the name: a circular import, or another version than the importer expects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD205"
NAME: Final = "import-name-missing"

_PATTERN: Final = re.compile(
    r"^(?:ImportError|AttributeError): (?:cannot import name '(?P<name>\w+)' "
    r"from (?P<partial>partially initialized module )?'(?P<module>[\w.]+)'"
    r"|(?P<partial2>partially initialized )?module '(?P<module2>[\w.]+)' has no attribute '(?P<name2>\w+)'"
    r"|(?P<needs>\b[\w.-]{1,80}[<>=!~][^\s]{1,80} is required[^\n]{0,200}))"
    r"|^ModuleNotFoundError: No module named '(?P<name3>[\w.]+)'; '(?P<module3>[\w.]+)' is not a package"
    r"|^ValueError: '(?P<taken>[\w-]+)' is already used by a Transformers config"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    if hit.get("needs") or hit.get("taken"):
        wanted = hit.get("needs") or f"a transformers release without its own '{hit.get('taken')}'"
        yield raised(
            case,
            CODE,
            NAME,
            hit.node,
            f"{{who}} stops at import: {wanted}",
            ["pip check", "install the version that the engine's metadata pins"],
        )
        return
    module = hit.get("module") or hit.get("module2") or hit.get("module3")
    name = hit.get("name") or hit.get("name2") or hit.get("name3")
    circular = bool(hit.get("partial") or hit.get("partial2"))
    why = "a circular import" if circular else "another version of it is installed than the importer expects"
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} finds no '{name}' in '{module}': {why}",
        [f"python -c 'import {module}; print({module}.__file__)'", "pip check", f"pip show {module.partition('.')[0]}"],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=70, evaluate=_evaluate)
