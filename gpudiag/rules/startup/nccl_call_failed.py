"""GPD219: NCCL refused a call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import line_evidence, raised

CODE: Final = "GPD219"
NAME: Final = "nccl-call-failed"

_PATTERN: Final = re.compile(
    r"NCCL (?:error|Error)[^\n]*|nccl(?:UnhandledCudaError|SystemError|InternalError|"
    r"InvalidArgument|InvalidUsage|RemoteError)[^\n]*|unhandled (?:cuda|system) error[^\n]*"
)

_NOISE: Final = re.compile(r"RAS|Could not find|plugin", re.IGNORECASE)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    warning = next((e for e in case.facts.of("nccl-warn") if not _NOISE.search(e.text)), None)
    detail = re.search(r"Last error:\s*\n?(.{1,300})", hit.node.message)
    said = warning.text[:160] if warning else detail.group(1)[:160] if detail else hit.found.group(0)[:120]
    notes = [line_evidence(case.facts, warning, "NCCL's own warning")] if warning else []
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}}: an NCCL call failed: {said}",
        ["NCCL_DEBUG=WARN, start again, and read the first NCCL WARN line", "dmesg -T | grep -iE 'xid|nvlink|oom' | tail"],
        notes=notes,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
