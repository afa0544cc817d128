"""GPD106: a Python file of the engine does not compile, so the server will die when it imports it."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit
from gpudiag.model.install import SyntaxFault
from gpudiag.rules.install.reading import part, short
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.preflight.words import plural

_SHOWN_BEFORE: Final = 3
_CONFLICT: Final = re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)")
_OPEN_IMPORT: Final = re.compile(r"^\s*from\s+\S+\s+import\s*\(")


def evaluate(facts: Facts) -> Answer:
    verified = part(facts, lambda install: install.verification)
    if isinstance(verified, Answer):
        return verified
    made = (
        CHECK.finding(
            f"{short(fault.path)}{f', line {fault.line},' if fault.line else ''} does not compile: {_said(fault)}",
            [seen("compiler", f"{fault.message}{f' (column {fault.column})' if fault.column else ''}", _excerpt(fault))],
            (
                likely_fix(fault),
                f"then: python -m py_compile {fault.path}",
            ),
            culprits=(Culprit(node=f"file:{fault.path}", file=fault.path, line=fault.line, path=fault.path),),
        )
        for fault in verified.faults
    )
    return found(
        made, passed(f"{plural(verified.compiled, 'changed file')} compiled" if verified.compiled else "no file was changed")
    )


def _said(fault: SyntaxFault) -> str:
    return fault.message.partition(": ")[2] or fault.message


def _excerpt(fault: SyntaxFault) -> str:
    lines = [(n, text) for n, text in fault.near if fault.line is None or n >= fault.line - _SHOWN_BEFORE]
    return "\n".join(f"{'>' if n == fault.line else ' '} {n:>5} {text}" for n, text in lines) or fault.text


def likely_fix(fault: SyntaxFault) -> str:
    """The usual reason for such an error, as an instruction."""
    before = [(n, text) for n, text in fault.near if fault.line is None or n <= fault.line]
    conflict = next((n for n, text in fault.near if _CONFLICT.match(text)), None)
    if conflict is not None:
        return f"a merge conflict was left in the file, at line {conflict}: decide for one side and remove the marks"
    opened = _unclosed_import(before)
    if opened is not None:
        return f"the import that begins on line {opened} is not closed: add ) after its last name"
    if "trailing comma not allowed" in fault.message:
        return f"line {fault.line} lists names of an import without brackets: write from ... import (a, b), or drop the comma"
    if "was never closed" in fault.message:
        return f"close the bracket that line {fault.line} opens"
    if re.search(r"indent|TabError", fault.message):
        return f"set the indentation of line {fault.line} like that of its neighbours, with spaces"
    if any(re.match(r"^[+-](?![+-=])\s", text) for n, text in before[-1:]):
        return f"line {fault.line} begins with + or -: a diff was pasted instead of applied"
    return (
        f"mend line {fault.line}, or reinstall the package that owns the file"
        if fault.line
        else "reinstall the package that owns the file"
    )


def _unclosed_import(before: list[tuple[int, str]]) -> int | None:
    """The line of a `from x import (` whose bracket is still open when the fault comes."""
    opened: int | None = None
    for number, text in before:
        code = text.partition("#")[0]
        if _OPEN_IMPORT.match(code):
            opened = number
        if opened is not None and ")" in code:
            opened = None
    return opened


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD106",
        name="package-syntax-error",
        severity="error",
        category="install",
        asks="does every changed file of the engine still compile?",
    ),
    evaluate=evaluate,
)
