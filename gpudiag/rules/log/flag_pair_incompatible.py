"""GPD705: two options do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD705"
NAME: Final = "flag-pair-incompatible"

_PATTERN: Final = re.compile(
    r"(?P<what>\w[\w -]{0,40} is not supported (?:in|with|by|for) (?:decode |prefill )?(?:attention backend|"
    r"--?[\w-]+|speculative)[^\n]{0,120})|(?P<what2>[^\n]{0,120}(?:cannot be used (?:together )?with|is incompatible with|"
    r"(?:is|are) not compatible with|can't be (?:used|set) together|mutually exclusive|conflicts with)[^\n]{0,120})"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    said = hit.get("what") or hit.get("what2")
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"two options do not go together: {said.strip()[:180]}",
        [
            "change one of the two options that the message names",
            "for EAGLE-3 in SGLang: --attention-backend fa3, flashinfer or triton",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=55, evaluate=_evaluate)
