"""GPD224: the model folder holds no weight files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD224"
NAME: Final = "weights-missing"

_PATTERN: Final = re.compile(
    r"Cannot find any model weights with `(?P<path>[^`]+)`|No (?:safetensors|model) weights? "
    r"(?:files? )?found|Following weights were not initialized from checkpoint|Cannot find weight files|"
    r"FileNotFoundError: [^\n]*(?P<path2>/[^'\n]*\.safetensors)|Some "
    r"(?:weights|parameters) (?:were|are) not (?:initialized|loaded)"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    path = hit.get("path") or hit.get("path2") or case.facts.model
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} finds no weight files in {path or 'the model folder'}",
        [
            f"ls -l {path or 'MODEL'}",
            "finish the download, or point --model-path at the folder that holds *.safetensors",
            "weights in another format need --load-format",
        ],
        path=path,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
