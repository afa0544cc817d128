"""GPD201: a Python file of the server does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule, blamed_frame
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import short_file

CODE: Final = "GPD201"
NAME: Final = "import-syntax-error"

_PATTERN: Final = re.compile(r"^(?P<kind>SyntaxError|IndentationError|TabError): (?P<what>[^\n]*)")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    frame = blamed_frame(hit.node)
    where = f"{short_file(frame.file)}, line {frame.line}" if frame else "a file that the traceback does not name"
    steps = (
        [f"python -m py_compile {frame.file}", f"sed -n '{max(1, frame.line - 3)},{frame.line + 3}p' {frame.file}"]
        if frame
        else []
    )
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} cannot import {where}: {hit.get('what')}",
        [*steps, "fix the line, or reinstall the package that owns the file"],
        path=frame.file if frame else None,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=90, evaluate=_evaluate)
