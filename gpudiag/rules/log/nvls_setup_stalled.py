"""GPD408: the log ends in NCCL's NVLS multicast set-up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import culprit, line_evidence

CODE: Final = "GPD408"
NAME: Final = "nvls-setup-stalled"

_NVLS: Final = re.compile(r"NVLS (?:Bind|comm|multicast|Creating|bind)|nvls(?:Bind|Allocate)")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind not in ("hang", "victim"):
        return
    last = next((line for line in reversed(case.facts.tail) if line.text.strip()), None)
    events = [e for e in case.facts.of("nccl-info") if _NVLS.search(e.text)]
    if last is None or not events or not _NVLS.search(last.text):
        return
    yield finding(
        CODE,
        NAME,
        "error",
        title="NCCL stopped while it set up NVLS multicast memory",
        links=[
            [line_evidence(case.facts, events[-1], "the last thing that NCCL said")],
            [Evidence(source="absence", claim="nothing follows it")],
        ],
        next_steps=[
            "NCCL_NVLS_ENABLE=0, as a way round",
            "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
        ],
        culprits=[culprit(case.facts, events[-1].speaker)],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
