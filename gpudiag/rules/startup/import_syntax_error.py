"""GPD201: a Python file of the server does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.log import Event
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule, blamed_frame
from gpudiag.rules.log.findings import line_evidence, node_of, raised, who
from gpudiag.rules.log.model_served_by_fallback import UNPARSED, file_of
from gpudiag.rules.log.words import short_file

CODE: Final = "GPD201"
NAME: Final = "import-syntax-error"

_PATTERN: Final = re.compile(r"^(?P<kind>SyntaxError|IndentationError|TabError): (?P<what>[^\n]*)")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is not None and event.kind == "import-ignored":
        yield from _passed_over(case, event)
        return
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


def _passed_over(case: LogCase, event: Event) -> Iterable[Finding]:
    """The same in an import that the server ignores and serves without (SGLang's model files)."""
    syntax = UNPARSED.search(event.fields["error"])
    if syntax is None:
        return
    module, file, line = event.fields["module"], file_of(event), int(syntax.group("line"))
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{who(case.facts, event.speaker)} cannot import {file}, line {line}: {syntax.group('what')}",
        links=[[line_evidence(case.facts, event, "the server passed the import over and went on")]],
        next_steps=[f"python -c 'import {module}'", "fix the line, or reinstall the package that owns the file"],
        culprits=[Culprit(node=node_of(case.facts, event.speaker), file=file, line=line)],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=90, evaluate=_evaluate)
