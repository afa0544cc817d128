"""GPD706: the model's own file failed to import, and a generic class serves in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import line_evidence, node_of

CODE: Final = "GPD706"
NAME: Final = "model-served-by-fallback"

_SYNTAX: Final = re.compile(r"(?P<what>.{1,200}) \((?P<file>[\w.-]+\.py), line (?P<line>\d+)\)$")
_FALLBACK: Final = re.compile(r"^Transformers\w+")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind != "model-class" or not _FALLBACK.match(event.fields.get("model_class", "")):
        return
    ignored = [e for e in case.facts.of("import-ignored") if _SYNTAX.search(e.fields.get("error", ""))]
    own = next((e for e in ignored if _names_itself(e.fields["module"], e.fields["error"])), ignored[0] if ignored else None)
    if own is None:
        return
    found = _SYNTAX.search(own.fields["error"])
    if found is None:
        return
    served, module = event.fields["model_class"], own.fields["module"]
    yield finding(
        CODE,
        NAME,
        "error",
        title=(
            f"{found.group('file')} does not parse at line {found.group('line')}, so "
            f"{served} serves the model instead of its own class: {found.group('what')}"
        ),
        links=[
            [line_evidence(case.facts, own, "the import error that was passed over")],
            [line_evidence(case.facts, event, "the class that serves")],
        ],
        next_steps=[
            f"python -m py_compile $(python -c 'import importlib.util; print(importlib.util.find_spec(\"{module}\").origin)')",
            "fix the line and restart: until then the server is slower and may answer differently",
        ],
        culprits=[
            Culprit(node=node_of(case.facts, own.speaker), file=module.replace(".", "/") + ".py", line=int(found.group("line")))
        ],
    )


def _names_itself(module: str, error: str) -> bool:
    """Whether the module that failed is the file with the error, and not one that imports it."""
    found = _SYNTAX.search(error)
    return found is not None and module.rpartition(".")[2] + ".py" == found.group("file")


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
