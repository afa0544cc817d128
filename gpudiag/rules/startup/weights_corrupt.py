"""GPD212: a weight file is truncated or damaged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import said

CODE: Final = "GPD212"
NAME: Final = "weights-corrupt"

_PATTERN: Final = re.compile(
    r"SafetensorError|Error while deserializing header|incomplete metadata, file "
    r"not fully covered|UnpicklingError: invalid load key|PytorchStreamReader failed|"
    r"unexpected EOF, expected \d+ more bytes|MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeader"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    model = case.facts.model
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        "{who} read a weight file that is cut short or damaged: " + said(hit.node.message, 100),
        [
            f"ls -l {model or 'MODEL'}/*.safetensors",
            "compare the sizes with model.safetensors.index.json, then download the file again",
            "a file that starts with 'version https://git-lfs' is a pointer: git lfs pull",
        ],
        path=model,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
