"""GPD226: an operator is not registered: its compiled extension is of another build, or was not loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD226"
NAME: Final = "operator-not-registered"

_PATTERN: Final = re.compile(
    r"operator (?P<op>[\w:.]+) does not exist|'_OpNamespace' '(?P<ns>\w+)' object has no "
    r"attribute '(?P<attr>\w+)'|Could not run '(?P<op2>[\w:.]+)' with arguments from the|"
    r"(?:No|no) (?:such )?operator (?P<op3>[\w:.]+)|Couldn't find an operator for "
    r"(?P<op4>[\w:.]+)|has no attribute '(?P<attr2>silu_and_mul|rms_norm|\w+_kernel)'"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    name = (
        hit.get("op")
        or hit.get("op2")
        or hit.get("op3")
        or hit.get("op4")
        or "::".join(p for p in (hit.get("ns"), hit.get("attr") or hit.get("attr2")) if p)
    )
    package = {"_C": "vllm", "_moe_C": "vllm"}.get(name.partition("::")[0], name.partition("::")[0]) or "the extension"
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}}: operator {name} is not registered: {package}'s compiled part is missing or built for another torch",
        [
            "pip check",
            f"pip show torch {package}",
            f"python -c 'import torch, {package}'",
            f"reinstall {package} in the build that matches torch (CPU or the same CUDA)",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=72, evaluate=_evaluate)
